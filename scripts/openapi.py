"""Write the OpenAPI document, or with --check say whether the one checked in is current."""

import json
import sys
from pathlib import Path

from app.main import openapi_document

PATH = Path(__file__).parents[1] / "docs" / "openapi.json"


def main() -> int:
    """Write, or check."""
    current = json.dumps(openapi_document(), indent=2, ensure_ascii=False) + "\n"
    if "--check" in sys.argv[1:]:
        if PATH.read_text() == current:
            return 0
        print("docs/openapi.json is not current. Run `make openapi` and look at the diff.")
        return 1
    PATH.write_text(current)
    return 0


if __name__ == "__main__":
    sys.exit(main())
