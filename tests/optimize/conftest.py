from __future__ import annotations

import sys
from pathlib import Path

# Shared spaces live beside the tests, which are no package.
sys.path.insert(0, str(Path(__file__).parent))
