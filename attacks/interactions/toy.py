"""Clients of a recommender: the toy of attacks on recommendation, of which baselines read no update."""

from fedleak.attacks.recommendation.toy import toy as toy
