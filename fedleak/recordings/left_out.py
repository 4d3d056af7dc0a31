"""Ways out where a recording's learner is not known."""

LEFT_OUT = "set learner to null in the manifest: attacks that simulate clients will be left out."
WAY_OUT = f"Record again with this version, or {LEFT_OUT}"
