"""MovieLens's file of four users, each with four items in a row."""

from pathlib import Path

from fedleak.datamodules.recommendation.movielens import MovieLens

LINES = [f"{user}\t{item}\t3\t{100 * user + item}" for user in range(1, 5) for item in range(user, user + 4)]


def movielens(root: Path, text: str | bytes) -> MovieLens:
    folder = root / "ml-100k"
    folder.mkdir(exist_ok=True)
    (folder / "u.data").write_bytes(text if isinstance(text, bytes) else text.encode())
    return MovieLens(root=str(root))
