from __future__ import annotations

import sys
from pathlib import Path

# Shared spaces are next to the tests, which do not form a package.
sys.path.insert(0, str(Path(__file__).parent))
