"""The papers' tables, each a grid over a training's configuration, and the command line of trainings."""
