"""Tiny files in the real layout of every data set with users."""

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedleak.datamodules.devices.pipa import SUBSETS
from tests.datamodules.image_trees import jpeg, noise, write_tree

Row = tuple[str, str, str]
WORDS = ("cat", "dog", "sea", "sun", "tea", "car", "sky", "map")
DISPLAY_NAMES = {"/m/0c4": "Food", "/m/0d5": "Building", "/m/0e6": "Guitar"}
_SIGNS = ("Aries", "Leo", "Pisces")


def _description(name: str) -> list[str]:
    """Gender, age, topic and sign."""
    blogger = int(name) if name.isdigit() else 0
    return ["male" if blogger % 2 else "female", str(15 + 10 * (blogger % 3)), "indUnk", _SIGNS[blogger // 2 % 3]]


def posts(bloggers: Sequence[int], *, per_blogger: int, sentences: int = 3) -> list[Row]:
    """Blogger, date and text, the newest first as in the real files; no sentence of a blogger twice."""
    return [
        (str(blogger), f"{per_blogger - post:02},August,2004", _text(blogger, per_blogger - post, sentences))
        for blogger in bloggers
        for post in range(per_blogger)
    ]


def _text(blogger: int, day: int, sentences: int) -> str:
    own = WORDS[blogger % len(WORDS)]
    return " ".join(f"The {own} of day{day} is part{part}." for part in range(sentences))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def write_blog_csv(root: Path, rows: Iterable[Row], *, name: str = "blogtext.csv") -> Path:
    header = ["id", "gender", "age", "topic", "sign", "date", "text"]
    return write_csv(root / "blog" / name, header, ([one, *_description(one), date, text] for one, date, text in rows))


def write_blog_xml(root: Path, rows: Sequence[Row]) -> Path:
    """One file for each blogger; tags stand in lines of their own, and nothing in the text is escaped."""
    folder = root / "blog" / "blogs"
    folder.mkdir(parents=True, exist_ok=True)
    for blogger in {row[0] for row in rows}:
        entries = [
            f"<date>{date}</date>\n<post>\n\n\t \n {text}\n\n</post>\n" for one, date, text in rows if one == blogger
        ]
        path = folder / f"{blogger}.{'.'.join(_description(blogger))}.xml"
        path.write_text("<Blog>\n\n" + "\n".join(entries) + "\n</Blog>\n", encoding="utf-8")
    return folder


Review = tuple[str, str, int, str]


def reviews(users: Sequence[str], *, per_user: int) -> list[Review]:
    """User, date, stars and text; users take turns."""
    return [
        (user, f"2011-01-{day + 1:02}", 1 + (day + number) % 5, f"Visit {day} to {WORDS[number]}, so so")
        for day in range(per_user)
        for number, user in enumerate(users)
    ]


def write_yelp_csv(root: Path, rows: Iterable[Review]) -> Path:
    header = ["business_id", "date", "review_id", "stars", "text", "type", "user_id", "cool", "useful", "funny"]
    lines = (["b", date, "r", stars, text, "review", user, 0, 0, 0] for user, date, stars, text in rows)
    return write_csv(root / "yelp" / "yelp.csv", header, lines)


def write_yelp_json(root: Path, rows: Iterable[Review]) -> Path:
    path = root / "yelp" / "yelp_academic_dataset_review.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = (
        {"review_id": "r", "user_id": user, "business_id": "b", "stars": float(stars), "useful": 0, "text": text}
        | {"date": f"{date} 00:08:03"}
        for user, date, stars, text in rows
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in fields), encoding="utf-8")
    return path


def write_amazon(root: Path) -> None:
    header = ["reviewerID", "asin", "reviewerName", "helpful", "reviewText", "overall", "summary"]
    rows = [
        ["A", "B", "", "[0, 0]", f"A cat and a {word}, fine", 1.0 + number % 5, "ok"]
        for number, word in enumerate(WORDS)
    ]
    write_csv(root / "amazon" / "reviews.csv", header, rows)


def _moment(row: int) -> str:
    """Two tweets a day, the later first."""
    return f"Sat May {16 + row // 2} 0{9 - row % 2}:18:35 PDT 2009"


def write_sent140(root: Path, users: Sequence[str], *, per_user: int) -> Path:
    path = root / "sent140" / "all_data.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        user: {
            "x": [["1", _moment(row), "NO_QUERY", user, f"@user tweet {row}", "training"] for row in range(per_user)],
            "y": [row % 2 for row in range(per_user)],
        }
        for user in users
    }
    content = {"users": list(users), "num_samples": [per_user] * len(users), "user_data": data}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write_open_images(root: Path, *, authors: int = 3, per_author: int = 6, dates: bool = False) -> Path:
    """Images of authors of whom two have one name; the one without labels is in none of the label files."""
    folder = root / "openimages"
    count = authors * per_author
    names = [f"{number:016x}" for number in range(count)]
    pixels = noise(count, 3, 9, 12, seed=7)
    write_tree(folder, {f"train/{name}.jpg": jpeg(image) for name, image in zip(names, pixels, strict=True)})
    header = [
        *("ImageID", "Subset", "OriginalURL", "OriginalLandingURL", "License", "AuthorProfileURL", "Author", "Title"),
        *("OriginalSize", "OriginalMD5", "Thumbnail300KURL", "Rotation"),
    ]
    rest = ["Sam", 'A "title", with\na line', 1, "m", "", 0.0]
    rows = [[name, "train", "u", "l", "c", f"https://flickr/{row % authors}", *rest] for row, name in enumerate(names)]
    elsewhere = ["f" * 16, *rows[0][1:]]
    write_csv(folder / "train-images-boxable-with-rotation.csv", header, [*rows, elsewhere])
    labels = [
        [name, "verification", label, confidence]
        for row, name in enumerate(names[:-1])
        for label, confidence in (("/m/0c4", 1), ("/m/0d5", row % 2), ("/m/0e6", int(row % 3 == 0)))
    ]
    header = ["ImageID", "Source", "LabelName", "Confidence"]
    write_csv(folder / "train-annotations-human-imagelabels.csv", header, labels)
    write_csv(folder / "class-descriptions.csv", ["/m/0c4", "Food"], list(DISPLAY_NAMES.items())[1:])
    if dates:
        days = [[name, f"2008-05-{row + 1:02}"] for row, name in enumerate(names)]
        write_csv(folder / "dates.csv", ["ImageID", "Date"], days)
    return folder


def write_pipa(root: Path, *, authors: int = 2, photosets: int = 3, per_photoset: int = 4) -> Path:
    """Photosets of authors, every photograph with two people in it; the last photograph has no file."""
    folder = root / "pipa"
    photos = [
        (7_000 + 10 * author + photoset, 100_000 + 1_000 * author + 100 * photoset + photo, author)
        for author in range(authors)
        for photoset in range(photosets)
        for photo in range(per_photoset)
    ]
    lines = [
        f"{photoset} {photo} {person} 5 20 30 {person} {photo % 4}"
        for photoset, photo, _ in photos
        for person in range(2)
    ]
    pixels = noise(len(photos), 3, 8, 10, seed=8)
    tree = {
        f"{SUBSETS[photo % 4]}/{photoset}_{photo}.jpg": jpeg(image)
        for (photoset, photo, _), image in zip(photos[:-1], pixels, strict=False)
    }
    write_tree(folder, tree)
    (folder / "all_data.txt").write_text("\n".join(lines) + "\n")
    write_csv(folder / "authors.csv", ["photo_id", "author"], [[photo, f"{author}@N00"] for _, photo, author in photos])
    found = [
        [photo, label, score]
        for row, (_, photo, _) in enumerate(photos)
        for label, score in (("food", 0.9), ("chair", 0.3 + 0.4 * (row % 2)), ("food", 0.6))
    ]
    write_csv(folder / "labels.csv", ["photo_id", "label", "score"], found)
    return folder
