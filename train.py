"""``fedleak train`` of a checkout: ``python train.py fit --config configs/train/fncf_movielens.yaml``."""

from fedleak.commands.train import command

if __name__ == "__main__":
    command()
