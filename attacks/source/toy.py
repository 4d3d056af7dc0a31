"""Clients who hold half of a pool of records: the toy of attacks on membership, which says whose each record is."""

from fedleak.attacks.record_membership.toy import toy as toy
