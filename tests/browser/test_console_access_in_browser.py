"""The page Access: ACLs, users and quotas of a secured cluster, each change shown before it is made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import Watch, patient
from console_process import HOSTILE

from moldau.testing import TestBroker

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from harness.patience import PATIENCE_S
from playwright.sync_api import Browser, Locator, Page, expect

expect.set_options(timeout=PATIENCE_S * 1000)


def logged_in(browser: Browser, address: str, user: str, password: str) -> Iterator[Page]:
    context = patient(browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce"))
    watch = Watch(context.new_page(), address)
    watch.page.goto(f"{address}/access")
    watch.page.get_by_label("User").fill(user)
    watch.page.get_by_label("Password").fill(password)
    watch.page.get_by_role("button", name="Log in").click()
    expect(watch.page.get_by_role("heading", level=1, name="Access")).to_be_visible()
    yield watch.page
    watch.check()
    context.close()


@pytest.fixture
def admin(browser: Browser, secure_kafka: TestBroker, secure_address: str) -> Iterator[Page]:
    yield from logged_in(browser, secure_address, "admin", secure_kafka.password("admin"))


@pytest.fixture
def ann(browser: Browser, secure_address: str) -> Iterator[Page]:
    yield from logged_in(browser, secure_address, "ann", "ann-secret-1")


def carry_out(page: Page, action: str, plan: str) -> None:
    """Ask for the plan if it is not shown yet, check it, and carry it out."""
    dialog = page.get_by_role("dialog")
    if dialog.get_by_role("button", name="Show the plan").is_visible():
        dialog.get_by_role("button", name="Show the plan").click()
    expect(dialog).to_contain_text("The plan: nothing has changed yet")
    expect(dialog).to_contain_text(plan)
    dialog.get_by_role("button", name=action).click()
    expect(dialog).to_have_count(0)


def rows(page: Page) -> Locator:
    return page.locator("main tbody tr")


def test_an_acl_is_allowed_tested_and_removed(admin: Page) -> None:
    admin.get_by_role("button", name="Allow", exact=True).click()
    dialog = admin.get_by_role("dialog")
    dialog.get_by_label("Principal").fill("bob")
    dialog.get_by_label("What").select_option("consumer")
    expect(dialog.get_by_label("Transactional id")).to_be_hidden()
    dialog.get_by_label("Topic").fill("orders*")
    dialog.get_by_label("Group", exact=True).fill(HOSTILE)
    dialog.get_by_role("button", name="Show the plan").click()
    expect(dialog.get_by_role("alert")).to_contain_text("names of topics have no star")
    dialog.get_by_label("Topic").fill("orders")
    carry_out(admin, "Add 3 ACLs", "User:bob gains read, describe")
    admin.get_by_label("Filter by principal").fill("bob")
    expect(rows(admin)).to_have_count(3)
    expect(rows(admin).filter(has_text=HOSTILE)).to_have_count(1)

    admin.get_by_role("button", name="Test").click()
    dialog.get_by_label("Principal").fill("bob")
    dialog.get_by_label("Name").fill("orders")
    dialog.get_by_role("button", name="Test").click()
    expect(dialog).to_contain_text("User:bob may read topic orders: an ACL allows it")
    dialog.get_by_label("Operation").select_option("write")
    dialog.get_by_role("button", name="Test").click()
    expect(dialog).to_contain_text("User:bob may not write topic orders: no ACL allows it")
    dialog.get_by_role("button", name="Close").first.click()

    admin.get_by_role("button", name="Remove these 3").click()
    carry_out(admin, "Remove 3 ACLs", "User:bob loses read, describe")
    expect(admin.get_by_text("No ACL matches “bob”")).to_be_visible()


def test_a_user_is_added_gets_a_new_password_and_is_removed(admin: Page) -> None:
    admin.get_by_role("navigation", name="Parts of access").get_by_role("link", name="Users").click()
    expect(rows(admin).filter(has_text="User:admin")).to_contain_text("super user")
    admin.get_by_role("button", name="Add user").click()
    dialog = admin.get_by_role("dialog")
    dialog.get_by_label("Name").fill("carol")
    dialog.get_by_label("Password").fill("carols-secret")
    dialog.get_by_label("The same again").fill("another-secret")
    dialog.get_by_role("button", name="Show the plan").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The two passwords differ")
    dialog.get_by_label("The same again").fill("carols-secret")
    carry_out(admin, "Add the user", "carol may do nothing yet")
    carol = rows(admin).filter(has_text="User:carol")
    expect(carol).to_contain_text("SCRAM-SHA-512")
    carol.get_by_role("button", name="New password").click()
    dialog.get_by_label("Password").fill("carols-other-secret")
    dialog.get_by_label("The same again").fill("carols-other-secret")
    carry_out(admin, "Set the password", "The old password is refused")
    carol.get_by_role("button", name="Remove").click()
    carry_out(admin, "Remove the user", "Connections that are open stay open")
    expect(carol).to_have_count(0)


def test_a_quota_is_set_changed_and_removed(admin: Page) -> None:
    admin.get_by_role("navigation", name="Parts of access").get_by_role("link", name="Quotas").click()
    admin.get_by_role("button", name="Set a quota").first.click()
    dialog = admin.get_by_role("dialog")
    dialog.get_by_label("For").select_option("both")
    dialog.get_by_label("User", exact=True).fill("bob")
    dialog.get_by_label("Write").fill("1048576")
    carry_out(admin, "Change 1 limit", "user bob, every client id without its own")
    bob = rows(admin).filter(has_text="user bob")
    expect(bob).to_contain_text("1 MiB/s")
    bob.get_by_role("button", name="Change").click()
    dialog.get_by_label("Read").fill("2097152")
    carry_out(admin, "Change 1 limit", "no limit")
    expect(bob).to_contain_text("2 MiB/s")
    bob.get_by_role("button", name="Remove").click()
    carry_out(admin, "Remove 2 limits", "no limit")
    expect(admin.get_by_text("No quotas yet")).to_be_visible()


def test_who_may_not_see_acls_is_told_why_and_offered_nothing(ann: Page) -> None:
    expect(ann.get_by_text("You may not see ACLs")).to_be_visible()
    expect(ann.get_by_text("That needs DESCRIBE on the cluster")).to_be_visible()
    expect(ann.get_by_role("button", name="Allow", exact=True)).to_have_count(0)


def test_a_cluster_without_an_authorizer_says_so(page: Page, address: str) -> None:
    page.goto(f"{address}/access")
    expect(page.get_by_text("Everybody may do everything")).to_be_visible()
    expect(page.get_by_text("authorizer.class.name=")).to_be_visible()
    expect(page.get_by_role("button", name="Allow", exact=True)).to_have_count(0)
    page.get_by_role("navigation", name="Parts of access").get_by_role("link", name="Users").click()
    expect(page.get_by_role("button", name="Add user").first).to_be_visible()
