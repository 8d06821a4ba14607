"""What makes docs/ a site as it is, with links that work on GitHub too.

CONTRIBUTING.md is a page of the site. A link to another file outside docs/ goes to the repository; the file has to
exist.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

log = logging.getLogger("mkdocs.docs-site")
LINK = re.compile(r"(?<=\]\()(?!https?:|#|/)([^)#\s]+)")
# A block of code shows links; it has none.
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.S)
PAGES = {"CONTRIBUTING.md": "contributing.md"}


def on_files(files, config):
    root = Path(config.config_file_path).parent
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=(root / source).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    root = Path(config.config_file_path).parent
    sources = {target: source for source, target in PAGES.items()}
    # Where the text is in the repository, which is where its links start.
    place = sources.get(page.file.src_uri, posixpath.join("docs", page.file.src_uri))

    def link(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), match[1]))
        if (root / target / "README.md").exists():
            target = posixpath.join(target, "README.md")
        if target in PAGES:
            target = posixpath.join("docs", PAGES[target])
        elif not (root / target).exists():
            log.warning("%s links to %s, which does not exist", place, match[1])
            return match[1]
        if target.startswith("docs/") and target.endswith(".md"):
            return posixpath.relpath(target, posixpath.join("docs", posixpath.dirname(page.file.src_uri)))
        kind = "tree" if (root / target).is_dir() else "blob"
        return f"{config.repo_url.rstrip('/')}/{kind}/main/{target}"

    parts = CODE.split(markdown)
    return "".join(part if i % 2 else LINK.sub(link, part) for i, part in enumerate(parts))
