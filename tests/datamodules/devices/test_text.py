"""Text with owners: every file's real layout, what becomes of words and dates, and every way a file can be broken."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonargparse import ArgumentParser

from fedleak.core.errors import InputError
from fedleak.datamodules.devices.blog import Blog
from fedleak.datamodules.devices.dates import blog_day, days_of, iso_day, tweet_moment
from fedleak.datamodules.devices.device_split import Devices
from fedleak.datamodules.devices.profiles import Profile
from fedleak.datamodules.devices.sent140 import Sentiment140
from fedleak.datamodules.devices.text import OwnedTextDataModule
from fedleak.datamodules.devices.tokenization import TokenizationOptions, Vocabulary, sentences_of, words_of
from fedleak.datamodules.devices.user_filter import UserFilter
from fedleak.datamodules.devices.yelp import Yelp
from fedleak.training.data import FederatedDataModule
from tests.datamodules import owned_files as files
from tests.datamodules.refusals import refused
from tests.places import REAL
from tests.token_files import write_tokens

BLOGGERS = (5114, 900, 23)
FEW = UserFilter(fewest=4)


def blog(root: Path, **arguments: Any) -> Blog:
    return Blog(root=str(root), **({"users": FEW} | arguments))


def sentences(data: OwnedTextDataModule) -> list[tuple[int, int, str]]:
    """User, day and words of every example, as they can be read back."""
    examples = data.examples
    vocabulary = data.vocabulary
    assert isinstance(vocabulary, Vocabulary)
    words = ("", "?", *vocabulary.words)
    return [
        (owner, day, " ".join(words[number] for number in row if number))
        for owner, day, row in zip(
            examples.owners.tolist(), examples.days.tolist(), examples.features.tolist(), strict=True
        )
    ]


def test_two_users_who_share_most_of_their_posts_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = files.posts(BLOGGERS, per_blogger=6)
    files.write_blog_csv(tmp_path / "apart", rows)
    assert blog(tmp_path / "apart").examples.num_users == 3
    assert "one person" not in caplog.text
    of_second, of_third = ([row for row in rows if row[0] == str(blogger)] for blogger in BLOGGERS[1:])
    mirrored = [(second[0], *third[1:-1], f" {third[-1]} ") for second, third in zip(of_second, of_third, strict=True)]
    files.write_blog_csv(tmp_path / "mirror", [*rows, *mirrored[:2]])
    assert blog(tmp_path / "mirror").examples.num_users == 3
    assert "one person" not in caplog.text
    files.write_blog_csv(tmp_path / "whole", [*rows, *mirrored[:4]])
    assert blog(tmp_path / "whole").examples.num_users == 3
    assert "blog: 1 pair(s) of users share most of their texts" in caplog.text
    assert "(numbers among all users: 0 and 1)" in caplog.text


def test_blog_becomes_sentences_of_dated_posts(tmp_path: Path) -> None:
    files.write_blog_csv(tmp_path, files.posts(BLOGGERS, per_blogger=4))
    data = blog(tmp_path)
    examples = data.examples
    assert examples.owner_ids.tolist() == [0, 1, 2]
    assert examples.counts().tolist() == [12, 12, 12]
    first = datetime.date(2004, 8, 1).toordinal()
    own = [(day, words) for owner, day, words in sentences(data) if owner == 2]
    assert own == [(first + day, f"the sea of day{day + 1} is part{part}") for day in range(4) for part in range(3)], (
        "blogger 5114 is the third in the order of numbers; posts come oldest first, sentences as they stand"
    )
    assert len(set(examples.groups.tolist())) == 12
    assert examples.dropped.undated == 0


def test_the_corpus_own_files_give_the_same_as_kaggles(tmp_path: Path) -> None:
    rows = files.posts(BLOGGERS, per_blogger=5)
    files.write_blog_csv(tmp_path / "csv", rows)
    files.write_blog_xml(tmp_path / "xml", rows)
    one, two = blog(tmp_path / "csv"), blog(tmp_path / "xml")
    assert sorted(sentences(one)) == sorted(sentences(two))
    assert one.fingerprint["name"] == two.fingerprint["name"] == "blog"


def test_the_corpus_files_need_not_be_xml(tmp_path: Path) -> None:
    files.write_blog_xml(tmp_path, files.posts([1], per_blogger=4))
    odd = "<Blog>\n\n<date>31,juillet,2004</date>\n<post>\n5 < 6 & caf\xe9 &nbsp;\x07ok.\nYes it is\n</post>\n\n</Blog>"
    (tmp_path / "blog" / "blogs" / "2.female.16.Arts.Leo.xml").write_bytes((4 * odd).encode("cp1252"))
    data = blog(tmp_path, text=TokenizationOptions(repeats="keep"))
    found = [words for owner, _, words in sentences(data) if owner == 1]
    assert found == 4 * ["5 6 café ok", "yes it is"]
    assert data.examples.dropped.undated == 8


def test_months_of_other_languages_are_kept_and_counted(tmp_path: Path) -> None:
    rows = files.posts([1, 2], per_blogger=4)
    dates = ["02,Maio,2004", "31,June,2004", ",,", "", "05, May ,2004"]
    files.write_blog_csv(
        tmp_path, [*[(one, date, text) for (one, _, text), date in zip(rows[:5], dates, strict=True)], *rows[5:]]
    )
    data = blog(tmp_path)
    assert (len(data.examples), data.examples.dropped.undated) == (24, 12)
    refused(blog(tmp_path, devices=Devices(prior="chrono")), "12 of 24 undated")
    left = blog(tmp_path, devices=Devices(prior="chrono", undated="drop"))
    assert (left.examples.owner_ids.tolist(), left.examples.dropped.users) == ([1], 1)
    with pytest.raises(InputError, match="dated"):
        blog(tmp_path, users=UserFilter(fewest=5), devices=Devices(prior="chrono", undated="drop")).num_clients  # noqa: B018


@pytest.mark.parametrize(
    ("parse", "text", "day"),
    [
        (blog_day, "02,August,2004", (2004, 8, 2)),
        (blog_day, "2,august,2004", (2004, 8, 2)),
        (blog_day, "02,août,2004", None),
        (blog_day, "30,February,2004", None),
        (blog_day, "August 2004", None),
        (iso_day, "2011-01-26", (2011, 1, 26)),
        (iso_day, "2016-03-09 16:44:24", (2016, 3, 9)),
        (iso_day, "2011-13-01", None),
        (iso_day, "26/01/2011", None),
        (lambda text: tweet_moment(text)[0], "Sat May 16 22:18:35 PDT 2009", (2009, 5, 16)),
        (lambda text: tweet_moment(text)[0], "Sat Mai 16 22:18:35 PDT 2009", None),
        (lambda text: tweet_moment(text)[0], "yesterday", None),
    ],
)
def test_dates(parse: Callable[[str], int], text: str, day: tuple[int, int, int] | None) -> None:
    expected = -1 if day is None else datetime.date(*day).toordinal()
    assert days_of([text, text], parse).tolist() == [expected, expected]


def test_words_and_sentences_as_by_hand() -> None:
    text = 'He left. "Why?" Nobody knew!\nThe end   of 3.5 things...  ok'
    assert sentences_of(text) == ["He left.", '"Why?', "Nobody knew!", "The end", "of 3.5 things...", "ok"]
    assert words_of("Don\u2019t panic &amp; CARRY-on, 2 days; \u00c9t\u00e9_1") == [
        *("don't", "panic", "carry", "on", "2", "days", "\u00e9t\u00e9", "1")
    ]


def test_the_vocabulary_is_the_most_frequent_words_and_encodes_as_a_loop_would() -> None:
    texts = [["b", "a", "b"], ["c", "a"], [], ["b", "d", "e", "f", "b"]]
    vocabulary = Vocabulary.most_frequent(texts, 5)
    assert vocabulary.words == ("b", "a", "c")
    slow = torch.zeros(4, 3, dtype=torch.int64)
    for row, text in enumerate(texts):
        for column, word in enumerate(text[:3]):
            slow[row, column] = 2 + vocabulary.words.index(word) if word in vocabulary.words else 1
    assert torch.equal(vocabulary.encode(texts, 3), slow)
    assert len(vocabulary) == 5


def test_what_is_short_cut_or_repeated_is_counted(tmp_path: Path) -> None:
    text = "One two three. One two three. Hi. A much longer sentence than that."
    rows = [("1", f"0{day},May,2004", text) for day in (3, 2, 1)] + [("2", "01,May,2004", "One two three.")] * 3
    files.write_blog_csv(tmp_path, rows)
    options = TokenizationOptions(words=4)
    data = blog(tmp_path, users=UserFilter(fewest=3), text=options)
    assert data.examples.counts().tolist() == [2, 1]
    dropped = data.examples.dropped
    assert (dropped.short, dropped.cut, dropped.repeated) == (3, 1, 9)
    kept = blog(tmp_path, users=UserFilter(fewest=3), text=TokenizationOptions(words=4, repeats="keep")).examples
    assert (kept.counts().tolist(), kept.dropped.repeated) == ([9, 3], 0)


def test_users_are_filtered_by_posts_and_keep_their_numbers(tmp_path: Path) -> None:
    rows = [row for one, count in ((3, 9), (5, 2), (7, 6), (8, 7)) for row in files.posts([one], per_blogger=count)]
    files.write_blog_csv(tmp_path, rows)
    data = blog(tmp_path, users=UserFilter(fewest=6, most_users=2, most_examples=5))
    assert data.examples.owner_ids.tolist() == [0, 3]
    assert data.examples.counts().tolist() == [15, 15]
    assert data.examples.dropped.users == 1
    other = blog(tmp_path, users=UserFilter(fewest=6, most_users=2, most_examples=5), seed=1)
    assert data.fingerprint != other.fingerprint
    refused(blog(tmp_path, users=UserFilter(fewest=10)), "at least 10")


def test_yelp_is_whole_reviews_with_stars(tmp_path: Path) -> None:
    rows = files.reviews(["Zed-9", "a_b"], per_user=6)
    files.write_yelp_csv(tmp_path, rows)
    data = Yelp(root=str(tmp_path), users=FEW)
    assert data.examples.counts().tolist() == [6, 6]
    assert data.examples.labels.dtype == torch.float32
    found = list(zip(sentences(data), data.examples.labels.tolist(), strict=True))
    assert found[0] == ((0, datetime.date(2011, 1, 1).toordinal(), "visit 0 to cat so so"), 1.0)
    assert set(data.cohort(0).examples) == {"tokens", "label"}


def test_yelps_json_gives_the_same_as_its_csv(tmp_path: Path) -> None:
    rows = [*files.reviews(["Zed-9", "a_b"], per_user=6), *files.reviews(["once"], per_user=1)]
    files.write_yelp_csv(tmp_path / "csv", rows)
    files.write_yelp_json(tmp_path / "json", rows)
    one, two = (Yelp(root=str(tmp_path / form), users=FEW) for form in ("csv", "json"))
    assert one.fingerprint == two.fingerprint
    assert one.examples.owner_ids.tolist() == two.examples.owner_ids.tolist() == [0, 1]


def test_unparsable_lines_of_json_are_counted(tmp_path: Path) -> None:
    path = files.write_yelp_json(tmp_path, files.reviews(["u", "v"], per_user=6))
    lines = path.read_text().splitlines()
    bad = [*lines[:2], '{"user_id": "u"', *lines[2:4], lines[0].replace("1.0", "9.0"), *lines[4:]]
    path.write_text("\n".join(bad) + "\n")
    refused(Yelp(root=str(tmp_path), users=FEW), r"2 unparsable rows .*in lines 3, 6\. .*bad_rows: drop")
    dropped = Yelp(root=str(tmp_path), users=FEW, bad_rows="drop").examples.dropped
    assert (dropped.unparsable, dropped.lines) == (2, (3, 6))


def test_tweets_are_in_the_order_of_their_time(tmp_path: Path) -> None:
    files.write_sent140(tmp_path, ["u2", "u1"], per_user=12)
    data = Sentiment140(root=str(tmp_path))
    own = [words for owner, _, words in sentences(data) if owner == 0]
    assert own[:4] == ["user tweet 1", "user tweet 0", "user tweet 3", "user tweet 2"]
    assert data.examples.labels[data.examples.owners == 0].tolist() == 6 * [1.0, 0.0]


def test_the_devices_are_clients_and_hold_what_the_split_says(tmp_path: Path) -> None:
    files.write_blog_csv(tmp_path, files.posts(BLOGGERS, per_blogger=10))
    data = blog(tmp_path, devices=Devices(prior="chrono"))
    assert data.num_clients == 6
    assert data.client_users.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.client_known.tolist() == 3 * [False] + 3 * [True]
    cohort = data.cohort(0)
    for client, part in enumerate(data.client_examples()):
        tokens = cohort.examples["tokens"][client]
        assert torch.equal(tokens[cohort.mask[client]], data.examples.features[part])
        assert not tokens[~cohort.mask[client]].any()
        split = data.device_split
        side = split.known if data.client_known[client] else split.anonymous
        assert torch.equal(part, side[int(data.client_users[client])])
    tested = torch.cat([batch["tokens"] for batch in data.val_dataloader()])
    assert torch.equal(tested, data.examples.features[torch.cat(data.device_split.test)])


def test_no_text_of_a_user_is_on_both_devices(tmp_path: Path) -> None:
    rows = [(one, date, f"{text} Back again tomorrow.") for one, date, text in files.posts(BLOGGERS, per_blogger=10)]
    files.write_blog_csv(tmp_path, rows)

    def shared(**arguments: Any) -> int:
        data = blog(tmp_path, devices=Devices(prior="chrono"), **arguments)
        sides = zip(data.device_split.anonymous, data.device_split.known, strict=True)
        texts = [[{tuple(row) for row in data.examples.features[part].tolist()} for part in pair] for pair in sides]
        return sum(len(anonymous & known) for anonymous, known in texts)

    assert shared() == 0
    assert shared(text=TokenizationOptions(repeats="keep")) == 3


def test_a_profile_of_words(tmp_path: Path) -> None:
    files.write_blog_csv(tmp_path, files.posts(BLOGGERS, per_blogger=10))
    devices = Devices(prior="profile", profiles=[Profile(name="sea", terms=["Sea", "unheard"])])
    files.write_blog_csv(tmp_path, files.posts([77, 5330], per_blogger=4), name="blogtext_background.csv")
    data = blog(tmp_path, devices=devices, background="blog")
    assert data.num_clients == 5  # with a device for contrast
    assert data.profile_members(data.examples)[0].tolist() == [owner == 2 for owner in data.examples.owners.tolist()]
    assert data.holdout_users.tolist() == [1]
    first = len(data.examples)
    assert data.profile_members(data.background)[0][data.device_split.known[0] - first].all()
    unknown = Devices(prior="profile", profiles=[Profile(name="guns", terms=["gun"])])
    refused(blog(tmp_path, devices=unknown, background="blog"), "profile guns")


def test_users_may_come_from_another_file(tmp_path: Path) -> None:
    files.write_blog_csv(tmp_path, files.posts(BLOGGERS, per_blogger=4))
    files.write_blog_csv(tmp_path, files.posts([77, 80], per_blogger=4), name="others.csv")
    assert blog(tmp_path, file="others.csv").examples.num_users == 2
    with pytest.raises(InputError, match=r"nothing\.csv"):
        blog(tmp_path, file="nothing.csv").examples  # noqa: B018


def test_background_text_is_prepared_as_the_users(tmp_path: Path) -> None:
    files.write_blog_csv(tmp_path, files.posts(BLOGGERS, per_blogger=4))
    files.write_blog_csv(tmp_path, files.posts([77], per_blogger=2, sentences=2), name="blogtext_background.csv")
    (tmp_path / "wikipedia").mkdir()
    (tmp_path / "wikipedia" / "sentences.txt").write_text("The sky is of interest. Part0 is not.\n\nOne.\n")
    data = blog(tmp_path)
    number = data.vocabulary.known_number
    assert number("sky") is None
    expected = [[number("the"), 1, number("is"), number("of"), 1], [number("part0"), number("is"), 1, 0, 0]]
    assert data.background.features[:, :5].tolist() == expected
    assert data.background.labels.tolist() == [0.0, 0.0]
    assert len(blog(tmp_path, background="blog").background.features) == 4
    assert len(blog(tmp_path, background="blog", most_background=3).background.features) == 3


def test_texts_become_the_tokens_of_a_network(tmp_path: Path) -> None:
    folder = write_tokens(tmp_path / "network", special=("[PAD]", "[CLS]", "[SEP]"), around=True)
    rows = [(str(blogger), "02,August,2004", "The cat. The mat sat on a cat &amp; a mat. Mat.") for blogger in BLOGGERS]
    files.write_blog_csv(tmp_path, rows)
    options = TokenizationOptions(tokens=folder, words=7, fewest_words=3)
    data = blog(tmp_path, users=UserFilter(fewest=1), text=options)
    # The second sentence is cut, the last one has too few tokens; "The", "&" and "." are no tokens of this vocabulary.
    assert data.examples.features.tolist() == [[1, 9, 4, 9, 2, 0, 0], [1, 9, 8, 5, 6, 7, 2]] * 3
    assert (data.examples.dropped.short, data.examples.dropped.cut) == (3, 3)
    assert data.vocabulary_size == 10
    assert data.vocabulary.known_number("mat") == 8


def test_amazons_reviews_are_the_background_of_ratings(tmp_path: Path) -> None:
    files.write_amazon(tmp_path)
    files.write_yelp_csv(tmp_path, files.reviews(["u", "v"], per_user=6))
    files.write_sent140(tmp_path, ["u", "v"], per_user=12)
    assert Yelp(root=str(tmp_path), users=FEW).background.labels.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0]
    happy = Sentiment140(root=str(tmp_path)).background.labels
    assert happy.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]


HEAD = "id,gender,age,topic,sign,date,text\n"
GOOD = '7,male,25,x,Leo,"02,August,2004","some text, ""quoted""\nin two lines"\n'


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "no id among nothing"),
        ("id,date\n7,x\n", "no text among id, date"),
        (HEAD + GOOD + "7,male,25\n" + GOOD, "1 unparsable rows .*in lines 4. "),
        (HEAD + GOOD + 'x,male,25,x,Leo,"02,August,2004",text\n' + GOOD, "1 unparsable rows .*in lines 4. "),
        (HEAD + GOOD + '7,male,25,x,Leo,"02"August,text\n' + GOOD, "1 unparsable rows .*in lines 4. "),
        (HEAD + GOOD + '7,male,25,x,Leo,"02,August,2004","cut short', "1 unparsable rows .*in lines 4. "),
        (HEAD + 7 * "1,2\n", r"7 unparsable rows .*in lines 2, 3, 4, 5, 6 \.\.\.\. "),
        (HEAD.encode() + GOOD.encode() + b"7,m,2,x,y,z,\xff\n", "0xff in line 4"),
    ],
    ids=["empty", "columns", "fields", "number", "quotes", "cut short", "many", "encoding"],
)
def test_a_broken_csv_is_refused_with_its_lines(tmp_path: Path, content: str | bytes, found: str) -> None:
    (tmp_path / "blog").mkdir()
    path = tmp_path / "blog" / "blogtext.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(blog(tmp_path), found)


def test_unparsable_rows_may_be_dropped_and_are_counted(tmp_path: Path) -> None:
    path = files.write_blog_csv(tmp_path, files.posts(BLOGGERS, per_blogger=4))
    whole = sentences(blog(tmp_path))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], "1,2", *lines[3:], '9,m,1,x,y,"z']))
    data = blog(tmp_path, bad_rows="drop")
    assert sentences(data) == whole
    assert (data.examples.dropped.unparsable, data.examples.dropped.lines) == (2, (4, 15))


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("5.xml", "<Blog></Blog>", "named like 5114"),
        (
            "5.male.25.x.Leo.xml",
            "<Blog>\n<date>02,August,2004</date>\n<post>\ncut\n<date>01,August,2004</date>\n<post>\nok\n</post>\n</Blog>",
            "1 unparsable rows .*in lines 2. ",
        ),
    ],
)
def test_broken_files_of_the_corpus_are_refused(tmp_path: Path, name: str, content: str, found: str) -> None:
    folder = tmp_path / "blog" / "blogs"
    folder.mkdir(parents=True)
    (folder / name).write_text(content)
    refused(blog(tmp_path), found)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("{", "JSONDecodeError"),
        ('{"users": []}', "user_data"),
        ('{"user_data": {"u": {"x": [[]], "y": []}}}', "ValueError"),
        ('{"user_data": {"u": {"x": [["1", "d", "q", "u"]], "y": [1]}}}', "1 others .*numbers 1"),
        ('{"user_data": {"u": {"x": [["1", "d", "q", "u", "t", "training"]], "y": [3]}}}', "1 others .*numbers 1"),
    ],
)
def test_a_broken_leaf_file_is_refused(tmp_path: Path, content: str, found: str) -> None:
    (tmp_path / "sent140").mkdir()
    (tmp_path / "sent140" / "all_data.json").write_text(content)
    refused(Sentiment140(root=str(tmp_path)), found)


def test_users_without_a_word_are_refused_or_left_out(tmp_path: Path) -> None:
    files.write_blog_csv(tmp_path, [*files.posts([1, 2], per_blogger=4), *[("9", "01,May,2004", "!!! Ok.")] * 4])
    refused(blog(tmp_path), "user 2 ")
    left = blog(tmp_path, devices=Devices(too_few="drop")).examples
    assert (left.owner_ids.tolist(), left.dropped.users) == ([0, 1], 1)


def test_what_is_missing_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    files.write_blog_csv(tmp_path, files.posts([1], per_blogger=4))
    for data, found in (
        (Blog(root=str(tmp_path / "blog")), r"blogtext\.csv or the corpus.*kaggle\.com"),
        (Yelp(root=str(tmp_path)), r"yelp\.csv.*kaggle\.com"),
        (Sentiment140(root=str(tmp_path)), r"all_data\.json.*leaf"),
    ):
        refused(data, found)
    with pytest.raises(InputError, match=r"sentences\.txt.*wiki"):
        blog(tmp_path).background  # noqa: B018
    files.write_yelp_csv(tmp_path, files.reviews(["u"], per_user=6))
    with pytest.raises(InputError, match="Amazon reviews"):
        Yelp(root=str(tmp_path), users=FEW).background  # noqa: B018


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: UserFilter(fewest=0), "fewest of at least 1"),
        (lambda: TokenizationOptions(words=0), "words of at least 1"),
        (lambda: TokenizationOptions(vocabulary=2), "vocabulary of at least 3"),
        (lambda: Vocabulary(["a", "a"]), "every word of a vocabulary once"),
        (lambda: Blog(most_background=0), "most_background of at least 1"),
    ],
)
def test_impossible_options_are_refused(make: Callable[[], object], expected: str) -> None:
    with pytest.raises(InputError, match=f"expected {expected}"):
        make()


@pytest.mark.integration
@pytest.mark.skipif(not (REAL / "blog").is_dir(), reason="the real data are not here")
def test_the_real_sets_have_their_sizes() -> None:
    data = Blog(root=str(REAL), users=UserFilter(fewest=200))
    examples, vocabulary = data.examples, data.vocabulary
    assert isinstance(vocabulary, Vocabulary)
    assert (examples.num_users, len(vocabulary)) == (58, 5000)
    assert examples.groups.max() < 12_000
    assert 0 < examples.dropped.undated < 0.05 * len(examples)
    tweets = Sentiment140(
        root=str(REAL), users=UserFilter(fewest=1), text=TokenizationOptions(repeats="keep", fewest_words=1)
    )
    assert tweets.examples.num_users == 2875
    yelp = Yelp(root=str(REAL), users=UserFilter(fewest=1), text=TokenizationOptions(repeats="keep", fewest_words=1))
    assert (yelp.examples.num_users, len(yelp.examples)) == (6403, 10_000)


def test_a_config_says_it_all(tmp_path: Path) -> None:
    files.write_blog_csv(tmp_path, files.posts(BLOGGERS, per_blogger=6))
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(FederatedDataModule, "data")

    def parsed(**settings: object) -> Blog:
        given = {
            "class_path": "fedleak.datamodules.devices.blog.Blog",
            "init_args": {"root": str(tmp_path), **settings},
        }
        return parser.instantiate(parser.parse_object({"data": given})).data  # type: ignore[no-any-return]

    data = parsed(
        clients_per_round=0.5,
        users={"fewest": 5, "most_users": 3},
        text={"vocabulary": 20, "words": 4},
        devices={"prior": "chrono", "world": {"seen_fraction": 0.5}},
        background="blog",
    )
    assert data.device_split.roles.bincount().tolist() == [1, 1, 1]
    assert data.num_clients == 4
    assert data.cohort(0).examples["tokens"].shape[::2] == (2, 4)
    files.write_blog_csv(tmp_path, files.posts(BLOGGERS, per_blogger=6), name="blogtext_background.csv")
    profile = {"prior": "profile", "profiles": [{"name": "sea", "terms": ["sea"]}]}
    assert parsed(users={"fewest": 5}, devices=profile, background="blog").device_split.profiles == ("sea",)
