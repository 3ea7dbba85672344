"""What Streamlit runs for every view of a page; the catalog is its argument."""

import sys
from pathlib import Path

from dashboards.app.shell import show

show(Path(sys.argv[1]))
