"""``python -m tests.reports.exporters.sarif_schema``: downloads the schema of SARIF 2.1.0, and prints its path.

The standard's repository has it under terms of its own, so it is no file of this project.
"""

import pooch

from fedleak.core.cache import cache_folder

URL = (
    "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/e0583813964ec43cea53b6b531b402866095ed1f"
    "/sarif-2.1/schema/sarif-schema-2.1.0.json"
)
SHA256 = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"

if __name__ == "__main__":
    print(pooch.retrieve(URL, f"sha256:{SHA256}", path=cache_folder(), progressbar=False))
