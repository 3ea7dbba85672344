"""Script that Streamlit runs for every page view; its argument is the catalog's path."""

import sys
from pathlib import Path

from dashboards.app.shell import show

show(Path(sys.argv[1]))
