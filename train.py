"""Federated training: ``python train.py fit --config configs/train/fncf_movielens.yaml --data.root DIR``."""

from fedleak.commands.train import command

if __name__ == "__main__":
    command()
