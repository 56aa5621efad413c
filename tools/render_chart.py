"""Render the Helm chart with the values of the tests, and write the manifests beside them: tests/deploy/helm/*.yaml.

    python -m tools.render_chart

It needs the program `helm`, which no package brings: the tests check the stored manifests, and that they are of the
chart as it is now. Run it after a change of the chart or of these values.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "sereno"
STORED = ROOT / "tests" / "deploy" / "helm"


def cases() -> Iterator[tuple[Path, Path]]:
    """Yield the files of values, each with the file of its manifests."""
    for values in sorted(STORED.glob("*.values.yaml")):
        yield values, values.with_name(values.name.replace(".values", ""))


def digest(values: Path) -> str:
    """Return the digest of everything that the manifests are made of."""
    whole = hashlib.sha256()
    for path in (*sorted(each for each in CHART.rglob("*") if each.is_file()), values):
        whole.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()


def render(helm: str, values: Path) -> str:
    """Return the manifests of a release, with the digest in the first line."""
    command = [helm, "template", "sereno", str(CHART), "--namespace", "shop", "--values", str(values)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return f"# {digest(values)}\n{done.stdout}"


def main() -> None:
    helm = shutil.which("helm")
    if helm is None:
        sys.exit("helm is not on PATH: see https://helm.sh/docs/intro/install")
    for values, manifests in cases():
        subprocess.run([helm, "lint", "--strict", "--quiet", str(CHART), "--values", str(values)], check=True)
        manifests.write_text(render(helm, values))


if __name__ == "__main__":
    main()
