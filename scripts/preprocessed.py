"""Prints the preprocessed text of a file, compiled as the compilation database says."""
import json
import shlex
import subprocess
import sys

database, wanted = sys.argv[1:]
for entry in json.load(open(database)):
    if entry["file"].endswith("/" + wanted):
        words = shlex.split(entry["command"])
        at = words.index("-o")
        del words[at : at + 2]
        words = [w for w in words if not w.endswith("ccache")]
        words[words.index("-c")] = "-E"
        sys.exit(subprocess.run(words + ["-P"], cwd=entry["directory"]).returncode)
sys.exit(f"{wanted} is not in {database}")
