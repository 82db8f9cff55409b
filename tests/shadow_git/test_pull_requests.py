"""Where a pull request is opened: for the forges whose pages we know, and for no other text."""

import pytest

from stagedoor.shadow_git.pushing import pull_request_link, shown_address

GITHUB = "https://github.com/me/site/compare/fix%2Fa?expand=1"


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("git@github.com:me/site.git", GITHUB),
        ("ssh://git@github.com:22/me/site", GITHUB),
        ("https://me:secret@github.com/me/site.git", GITHUB),
        ("https://GitHub.com/me/site/", GITHUB),
        ("https://github.evil.example/me/site", ""),
        ("git@gitlab.example.org:group/sub/site.git", ""),
        ("https://github.com.evil.example/me/site", ""),
        ("https://bitbucket.org/me/site.git", "https://bitbucket.org/me/site/pull-requests/new?source=fix%2Fa"),
        ("git@codeberg.org:me/site", "https://codeberg.org/me/site/compare/fix%2Fa"),
        ("git@git.example.org:me/site.git", ""),
        ("file:///tmp/github.com/me/site.git", ""),
        ("https://github.com/me", ""),
        ("https://github.com/me/../site", ""),
        ("https://github.com/me/si te", ""),
        ("javascript:alert(1)//github.com/me/site", ""),
        ("https://evil.example/github.com/me/site", ""),
        ("", ""),
    ],
)
def test_link(address: str, link: str) -> None:
    assert pull_request_link(address, "fix/a") == link


def test_a_forge_of_ones_own_is_one_that_the_operator_named() -> None:
    link = "https://gitlab.example.org/group/sub/site/-/merge_requests/new?merge_request%5Bsource_branch%5D=fix%2Fa"
    assert pull_request_link("git@gitlab.example.org:group/sub/site.git", "fix/a", allowed=True) == link
    assert pull_request_link("git@git.example.org:me/site.git", "fix/a", allowed=True) == ""


def test_no_password_is_shown() -> None:
    assert shown_address("https://me:secret@github.com/me/site.git") == "https://github.com/me/site.git"
    assert shown_address("git@github.com:me/site.git") == "git@github.com:me/site.git"
