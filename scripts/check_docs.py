"""Checks that every relative link of the documentation leads to a file, and every ./dev verb it names exists."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
faults = []
verbs = set(re.findall(r"^  ([a-z0-9| -]+)\)", (root / "dev").read_text(), re.M))
known = {verb.strip() for group in verbs for verb in group.split("|")}
for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not (page.parent / target).exists():
            faults.append(f"{page.relative_to(root)}: {target} does not exist")
    for verb in re.findall(r"\./dev ([a-z0-9]+)", text):
        if verb not in known:
            faults.append(f"{page.relative_to(root)}: ./dev {verb} does not exist")
print("\n".join(faults) if faults else "documentation: all links lead somewhere")
sys.exit(1 if faults else 0)
