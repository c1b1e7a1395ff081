"""Writes the address of the repository into the metadata and README.md before a release is built.

README, pyproject.toml and the manifests of the crates name no host, so that a fork or a move
changes nothing. PyPI shows README where relative links lead nowhere, so the wheel of a release has
absolute ones. crates.io makes the links in the READMEs of crates absolute by their manifests:

    python .github/name_repository.py https://example.org/owner/tensorferry v0.1.0
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The target of a Markdown link or image, without its anchor, unless it is absolute or an anchor.
LINK = re.compile(r"(!?)(\[[^\]]*\]\()(?![a-z]+:|#)([^)#\s]+)")


def absolute(text: str, repository: str, tag: str) -> str:
    """README with absolute links: pages to their view on the host, images to their bytes."""

    def replace(found: re.Match[str]) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}{found[2]}{repository}/{kind}/{tag}/{found[3]}"

    return LINK.sub(replace, text)


def with_urls(text: str, repository: str, tag: str) -> str:
    """pyproject.toml with the addresses of the project."""
    urls = {
        "Repository": repository,
        "Documentation": f"{repository}/tree/{tag}/docs",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    lines = "".join(f'{name} = "{address}"\n' for name, address in urls.items())
    return text.replace("[project.scripts]\n", f"[project.urls]\n{lines}\n[project.scripts]\n")


def with_repository(text: str, repository: str) -> str:
    """The manifest of a crate with the address of the repository, if the crate is published."""
    if tomllib.loads(text)["package"].get("publish") is False:
        return text
    licence = "license.workspace = true\n"
    return text.replace(licence, f'{licence}repository = "{repository}"\n', 1)


def main() -> None:
    """Changes the files of a checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", help="the address of the repository")
    parser.add_argument("tag", help="the tag of the release, or the branch of a trial")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to change")
    given = parser.parse_args()
    project = given.root / "pyproject.toml"
    text = project.read_text()
    version = tomllib.loads(text)["project"]["version"]
    if re.match(r"v\d", given.tag) and given.tag != f"v{version}":
        raise SystemExit(f"the tag is {given.tag}, and pyproject.toml has version {version}")
    project.write_text(with_urls(text, given.repository, given.tag))
    readme = given.root / "README.md"
    readme.write_text(absolute(readme.read_text(), given.repository, given.tag))
    for manifest in sorted(given.root.glob("crates/*/Cargo.toml")):
        manifest.write_text(with_repository(manifest.read_text(), given.repository))


if __name__ == "__main__":
    main()
