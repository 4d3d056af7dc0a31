"""Writers with two devices each: the toy of attacks on anonymity, which has pairs of messages to compare."""

from fedleak.attacks.re_identification.toy import toy as toy
