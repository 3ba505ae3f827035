"""Reads answers, work and commits of people for D8: a survey, issues and pull requests, histories of repositories. `holdall bench run D8` runs this and
draws what it prints: {"questions", "profiles", "items", "histories": the figures; "tables", "charts": how they are shown}. Nothing is fetched.

    python3 read.py FOLDER
"""

import csv
import json
import math
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

DAY_S = 86_400
WEEK_S = 7 * DAY_S
# A date of a broken clock would take all memory.
WEEKS_MAX = 52 * 100
STEPS = ["strongly disagree", "disagree", "neutral", "agree", "strongly agree"]
# The values that the published report gave the steps: strong answers count as weak ones and the other way round.
SCALE, SCALE_AS_PUBLISHED = [1, 2, 3, 4, 5], [2, 1, 3, 5, 4]
# Questions whose answers were published as histograms (6.2.5).
HISTOGRAMS = ["Q4", "Q11", "Q5", "Q13", "Q14", "Q16"]
# The time that the published report assumed for items still open; also the last day that is drawn.
PUBLISHED_OPEN_DAYS = 180
# The format for `git log`; a file with the same lines is read as well.
FORMAT = "%H%x09%aI%x09%aN%x09%P"


class Broken(Exception):
    """A file that holds something else, in one sentence."""


def grouped(rows, key):
    """Rows with an equal key together, in the order in which keys first occur."""
    groups = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def rows_of(path, columns, what):
    """The rows of a CSV file as dictionaries."""
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        missing = [column for column in columns if column not in (reader.fieldnames or [])]
        if missing:
            raise Broken(f"{path}: holds no {what}: the column {missing[0]} is missing")
        return list(reader)


def count_of(path, row, column, what):
    """A count in a row; nothing is none."""
    try:
        count = int(row.get(column) or 0)
        if count < 0:
            raise ValueError
        return count
    except ValueError:
        raise Broken(f"{path}: holds no {what}: {column} is {row[column]!r}, expected a count") from None


def dash(value, digits):
    return "–" if value is None else f"{value:.{digits}f}"


# The survey.


def mean_and_deviation(counts, scale):
    """Mean and standard deviation of answers; None without any."""
    count = sum(counts)
    if count == 0:
        return None
    mean = sum(number * value for number, value in zip(counts, scale)) / count
    squares = sum(number * (value - mean) ** 2 for number, value in zip(counts, scale))
    return mean, math.sqrt(squares / max(count - 1, 1))


def mann_whitney(first, second):
    """Whether answers of two cohorts differ (two-sided, normal approximation with ties); None without answers, or when all are equal."""
    n1, n2 = sum(first), sum(second)
    both = n1 + n2
    higher = lower = ties = 0
    for a, b in zip(first, second):
        higher += a * (lower + b / 2)
        lower += b
        ties += (a + b) ** 3 - (a + b)
    variance = n1 * n2 / 12 * (both + 1 - ties / (both * (both - 1))) if both > 1 else 0
    if variance <= 0:
        return None
    distance = max(abs(higher - n1 * n2 / 2) - 0.5, 0)
    p = min(math.erfc(distance / math.sqrt(variance) / math.sqrt(2)), 1)
    return {"p": p, "p_holm": p, "effect": 2 * higher / (n1 * n2) - 1}


def asked(question):
    """Its name, and its text where the data have it."""
    return f"{question['name']}: {question['text']}" if question["text"] else question["name"]


def survey(path, texts):
    """Questions with their answers by cohort, and the first two cohorts other than `all` compared."""
    what, columns = "counts of answers", [step.replace(" ", "_") for step in STEPS]
    questions = []
    for name, rows in grouped(rows_of(path, ["question", "cohort", *columns], what), lambda row: row["question"]).items():
        cohorts = []
        for row in rows:
            counts = [count_of(path, row, column, what) for column in columns]
            ours, theirs = (mean_and_deviation(counts, scale) for scale in (SCALE, SCALE_AS_PUBLISHED))
            cohorts.append({
                "cohort": row["cohort"],
                "counts": counts,
                "not_applicable": count_of(path, row, "not_applicable", what),
                "mean": ours and ours[0],
                "mean_as_published": theirs and theirs[0],
            })
        two = [cohort["counts"] for cohort in cohorts if cohort["cohort"] != "all"][:2]
        questions.append({"name": name, "text": texts.get(name, ""), "cohorts": cohorts, "comparison": mann_whitney(*two) if len(two) == 2 else None})
    compared = sorted((one["comparison"] for one in questions if one["comparison"]), key=lambda one: one["p"])
    least = 0
    for place, one in enumerate(compared):
        # Holm's correction for the number of questions: never below a smaller one's.
        least = max(least, min(one["p"] * (len(compared) - place), 1))
        one["p_holm"] = least
    return questions


def survey_table(questions):
    rows = []
    for question in questions:
        first = next((one for one in question["cohorts"] if one["cohort"] != "all"), None)
        for place, one in enumerate(question["cohorts"]):
            # In the row of the first of both.
            compared = question["comparison"] if one is first and question["comparison"] else {}
            rows.append([
                asked(question) if place == 0 else "",
                one["cohort"],
                str(sum(one["counts"])),
                dash(one["mean"], 2),
                dash(one["mean_as_published"], 2),
                dash(compared.get("effect"), 2),
                dash(compared.get("p"), 4),
                dash(compared.get("p_holm"), 4),
            ])
    header = ["question", "cohort", "answers", "mean", "as published", "effect", "p", "p, Holm"]
    return {"title": "What users answered", "header": header, "words": 2, "rows": rows}


def survey_charts(questions):
    pairs = [(question, one) for question in questions for one in question["cohorts"]]
    apart = [(question, one) for question, one in pairs if one["cohort"] != "all"]
    yield {
        "name": "answers",
        "title": "Answers of users by cohort, around neutral; right: number of answers",
        "csv": [["question", "cohort", *STEPS, "not applicable"]]
        + [[question["name"], one["cohort"], *one["counts"], one["not_applicable"]] for question, one in apart],
        "around": {"names": STEPS, "rows": [[f"{question['name']} {one['cohort']}", one["counts"]] for question, one in apart]},
    }
    bars, data = [], []
    for question, one in pairs:
        ours, theirs = (mean_and_deviation(one["counts"], scale) for scale in (SCALE, SCALE_AS_PUBLISHED))
        if ours:
            data.append([question["name"], one["cohort"], ours[0], ours[1], theirs[0], theirs[1]])
            figures = [[mean, mean - deviation, min(mean + deviation, 5)] for mean, deviation in (ours, theirs)]
            bars.append({"group": asked(question), "label": one["cohort"], "series": question["cohorts"].index(one), "figure": figures[0], "other": figures[1]})
    yield {
        "name": "means",
        "title": "Mean answer, 1 strongly disagree to 5 strongly agree, and its standard deviation; grey: as published, with strong and weak answers swapped",
        "csv": [["question", "cohort", "mean", "deviation", "mean_as_published", "deviation_as_published"], *data],
        "bars": {"unit": "", "digits": 2, "most": 5, "bars": bars},
    }
    for question in questions:
        if question["name"] in HISTOGRAMS:
            counts = [(one["cohort"], list(enumerate(one["counts"])), STEPS) for one in question["cohorts"]]
            title = f"Answers to {question['name']}, in percent of each cohort" + (f": {question['text']}" if question["text"] else "")
            yield histogram(f"answers_{question['name']}", title, counts, ["cohort", "answer", "count"], {"y": "answers, %", "places": STEPS})


def histogram(name, title, cohorts, columns, axes):
    """A line for each cohort through (place, count), in percent of the cohort."""
    data, lines = [columns], []
    for colour, (cohort, counts, names) in enumerate(cohorts):
        count = sum(number for _, number in counts)
        data += [[cohort, names[place] if names else place, number] for place, number in counts]
        points = [[place, 100 * number / max(count, 1)] for place, number in counts]
        lines.append({"name": f"{cohort} ({count})", "points": points, "dotted": True, "colour": colour})
    return {"name": name, "title": title, "csv": data, "lines": {"lines": lines, **axes}}


# Who answered.


def number(text):
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None


def profiles(path):
    """Counts of answers about the users: numbers ascending, texts most frequent first. A text given by one person could identify them: it counts as other."""
    what = "counts of users"
    rows = [
        {**row, "count": count_of(path, row, "count", what)}
        for row in rows_of(path, ["field", "cohort", "answer", "count"], what)
    ]
    found = []
    for field, of_field in grouped(rows, lambda row: row["field"]).items():
        is_number = all(row["answer"] == "" or number(row["answer"]) is not None for row in of_field)
        everybody = {}
        for row in of_field:
            if row["cohort"] == "all":
                everybody[row["answer"]] = everybody.get(row["answer"], 0) + row["count"]
        cohorts = []
        for cohort, of_cohort in grouped(of_field, lambda row: row["cohort"]).items():
            counts = {}
            for row in of_cohort:
                answer = row["answer"]
                if is_number and not answer:
                    continue
                if not is_number and (not answer or everybody.get(answer, 2) <= 1):
                    answer = "other"
                counts[answer] = counts.get(answer, 0) + row["count"]
            order = (lambda one: number(one[0])) if is_number else (lambda one: (-everybody.get(one[0], 0), one[0]))
            cohorts.append([cohort, [list(one) for one in sorted(counts.items(), key=order)]])
        found.append({"field": field, "cohorts": cohorts})
    return found


def profile_chart(profile):
    name, title = f"profile_{profile['field']}", f"Users by {profile['field'].replace('_', ' ')}, in percent of each cohort"
    answers = list(dict.fromkeys(answer for _, counts in profile["cohorts"] for answer, _ in counts))
    if all(number(answer) is not None for answer in answers):
        cohorts = [(cohort, [(number(answer), count) for answer, count in counts], None) for cohort, counts in profile["cohorts"]]
        return histogram(name, title, cohorts, ["cohort", "answer", "users"], {"x": "answer", "y": "users, %"})
    bars, data = [], [["cohort", "users", *answers]]
    for cohort, counts in profile["cohorts"]:
        each, count = dict(counts), sum(count for _, count in counts)
        data.append([cohort, count, *(each.get(answer, 0) for answer in answers)])
        stack = [100 * each.get(answer, 0) / max(count, 1) for answer in answers]
        bars.append({"group": profile["field"].replace("_", " "), "label": f"{cohort} ({count})", "figure": [100, 100, 100], "stack": stack})
    parts = [[answer, colour] for colour, answer in enumerate(answers)]
    return {"name": name, "title": title, "csv": data, "bars": {"unit": "%", "digits": 0, "most": 100, "parts": parts, "bars": bars}}


# Issues and pull requests.


def seconds(path, text):
    """Seconds since the epoch of `2020-10-16 13:37:45`, with or without `T` and `Z`."""
    try:
        return datetime.fromisoformat(text.removesuffix("Z").replace(" ", "T")).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        raise Broken(f"{path}: {text!r} is not a time") from None


def items_of_file(path):
    what = "items of repositories"
    for row in rows_of(path, ["repository", "kind", "state", "opened_at", "open_for_s"], what):
        opened, open_for_s = seconds(path, row["opened_at"]), row["open_for_s"]
        if open_for_s and number(open_for_s) is None:
            raise Broken(f"{path}: holds no {what}: open_for_s is {open_for_s!r}, expected seconds")
        yield row["repository"], row["kind"], row["state"], opened, float(open_for_s) if open_for_s else None


def items_of_pages(paths):
    """Pages of the hosting site's lists of issues or pull requests, as its interface returns them."""
    for path in paths:
        try:
            for item in json.loads(path.read_text(encoding="utf-8")):
                # Only the list of pull requests has `head`; an issue that is a pull request has `pull_request`.
                kind = "pull_request" if item.get("head") is not None else "pull_request_listed_as_issue" if item.get("pull_request") is not None else "issue"
                repository = "/".join(item["html_url"].split("://", 1)[1].split("/")[1:3])
                opened, closed = seconds(path, item["created_at"]), item.get("closed_at")
                yield repository, kind, item["state"], opened, seconds(path, closed) - opened if closed else None
        except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
            raise Broken(f"{path}: is not a list of issues or pull requests: {error!r}") from None


def items(rows):
    """The items of each kind of each repository, and how long they take to be closed."""
    rows = list(rows)
    # The data end with the last thing that happened in them.
    end = max((opened + (open_for_s or 0) for *_, opened, open_for_s in rows), default=0)
    found = []
    for (repository, kind), members in grouped(rows, lambda row: row[:2]).items():
        spans = []
        for _, _, state, opened, open_for_s in members:
            is_closed = state != "open"
            watched = open_for_s if is_closed and open_for_s is not None else end - opened
            spans.append((watched / DAY_S, is_closed))
        spans.sort(key=lambda span: span[0])
        closed = [days for days, is_closed in spans if is_closed]
        curve = kaplan_meier(spans)
        found.append({
            "repository": repository,
            "kind": kind,
            "open": len(spans) - len(closed),
            "closed": len(closed),
            "closed_after_days": curve,
            # Open ones count as never closed.
            "closed_after_days_as_published": [[days, place / len(spans)] for place, days in enumerate(closed, 1)],
            "median_days": next((days for days, share in curve if share >= 0.5), None),
            "median_days_as_published": statistics.median(days if is_closed else PUBLISHED_OPEN_DAYS for days, is_closed in spans),
        })
    return found


def kaplan_meier(spans):
    """The share closed after each time at which an item was closed: an open one counts as long as it was watched."""
    share_open, watched, curve = 1.0, len(spans), [[0.0, 0.0]]
    for days, same in grouped(spans, lambda span: span[0]).items():
        closed = sum(is_closed for _, is_closed in same)
        if closed:
            share_open *= 1 - closed / watched
            curve.append([days, 1 - share_open])
        watched -= len(same)
    return curve


KINDS = {"issue": "issue", "pull_request": "pull request", "pull_request_listed_as_issue": "pull request listed as issue"}


def items_table(found):
    rows = [
        [one["repository"], KINDS.get(one["kind"], one["kind"]), str(one["open"]), str(one["closed"]), dash(one["median_days"], 1), dash(one["median_days_as_published"], 1)]
        for one in found
    ]
    header = ["repository", "kind", "open", "closed", "median days", "as published"]
    return {"title": "Issues and pull requests", "header": header, "words": 2, "rows": rows}


def items_charts(found):
    bars, data = [], [["repository", "items", "open", "closed"]]
    for repository, members in grouped(found, lambda one: one["repository"]).items():
        # As published, pull requests count among the issues, too (4.2.1).
        for name, kinds in [
            ("pull requests", ["pull_request"]),
            ("issues", ["issue"]),
            ("issues as published", ["issue", "pull_request_listed_as_issue"]),
        ]:
            counts = [sum(one[state] for one in members if one["kind"] in kinds) for state in ("open", "closed")]
            data.append([repository, name, *counts])
            bars.append({"group": repository, "label": name, "figure": [sum(counts)] * 3, "stack": counts})
    yield {
        "name": "items",
        "title": "Pull requests and issues of each repository, open and closed",
        "csv": data,
        "bars": {"unit": "", "digits": 0, "most": 1, "parts": [["open", 1], ["closed", 0]], "bars": bars},
    }
    for name, kinds, title in [
        ("issues", ["issue", "pull_request_listed_as_issue"], "Issues closed by then, pull requests apart"),
        ("pull_requests", ["pull_request"], "Pull requests closed by then"),
    ]:
        if any(one["kind"] == kinds[0] for one in found):
            yield closed_chart(name, title, [one for one in found if one["kind"] in kinds])


def closed_chart(name, title, found):
    """The share of items that are closed after some days (4.2.2)."""
    data, lines = [["repository", "as", "days", "closed_percent"]], []

    def steps(repository, how, label, colour, curve):
        data.extend([repository, how, days, 100 * share] for days, share in curve)
        points = [[0, 0]]
        for days, share in curve:
            if days <= PUBLISHED_OPEN_DAYS:
                points += [[days, points[-1][1]], [days, 100 * share]]
        points.append([PUBLISHED_OPEN_DAYS, points[-1][1]])
        lines.append({"name": label, "points": points, "colour": colour})

    for colour, (repository, members) in enumerate(grouped(found, lambda one: one["repository"]).items()):
        count = sum(one["open"] + one["closed"] for one in members)
        days = sorted(days for one in members for days, _ in one["closed_after_days_as_published"])
        steps(repository, "published", "", None, [[day, place / max(count, 1)] for place, day in enumerate(days, 1)])
        for one in members:
            if one["kind"] != "pull_request_listed_as_issue":
                label = f"{repository} ({one['open']} open, {one['closed']} closed)"
                steps(repository, "Kaplan-Meier", label, colour, one["closed_after_days"])
    title += " (Kaplan–Meier); grey: as published, open ones never closed"
    axes = {"x": "days since it was opened", "y": "closed, %", "x_end": PUBLISHED_OPEN_DAYS, "y_end": 100}
    return {"name": name, "title": title, "csv": data, "lines": {"lines": lines, **axes}}


# Commits.


def git_log(path):
    command = ["git", "-C", str(path), "log", f"--format={FORMAT}", "--numstat"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    except OSError as error:
        raise Broken(f"git log of {path}: cannot be started: {error.strerror}") from None
    if done.returncode:
        raise Broken(f"git log of {path}: {(done.stderr.decode(errors='replace').splitlines() or ['no reason printed'])[0]}")
    return done.stdout.decode(errors="replace")


def history(path, text):
    """A repository's commits by week, its authors, and how many of them made half of the commits."""

    def broken(line, reason):
        return Broken(f"{path}: is not the output of git log --format={FORMAT} --numstat: line {line}: {reason}")

    weeks, authors, merges, changed = [], {}, 0, [0, 0]
    for number_of_line, line in enumerate(text.splitlines(), 1):
        fields = line.split("\t")
        if not line:
            continue
        if len(fields) == 4 and len(fields[0]) >= 40:
            _, time, author, parents = fields
            try:
                weeks.append(math.floor(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() / WEEK_S))
            except ValueError:
                raise broken(number_of_line, f"{time!r} is not a time") from None
            merges += len(parents.split(" ")) > 1
            authors[author] = authors.get(author, 0) + 1
        elif len(fields) == 3:
            # For a binary file git prints `-`.
            changed = [count + (int(field) if field.isdigit() else 0) for count, field in zip(changed, fields)]
        else:
            raise broken(number_of_line, "expected a commit or counts of a file")
    if not weeks:
        raise broken(1, "it has no commit")
    first = min(weeks)
    count = max(weeks) - first + 1
    if count > WEEKS_MAX:
        raise broken(1, "commits are a century apart")
    by_week = [0] * count
    for week in weeks:
        by_week[week - first] += 1
    made = bus_factor = 0
    for commits in sorted(authors.values(), reverse=True):
        if 2 * made >= len(weeks):
            break
        made, bus_factor = made + commits, bus_factor + 1
    return {
        "repository": path.name,
        "commits": len(weeks),
        "merges": merges,
        "authors": len(authors),
        "bus_factor": bus_factor,
        "lines": changed,
        "weeks": count,
        "by_week": by_week,
    }


def commits_table(histories):
    header = ["repository", "commits", "merges", "weeks", "a week", "authors", "of half", "lines added", "removed"]
    rows = [
        [one["repository"], *map(str, (one["commits"], one["merges"], one["weeks"])), f"{one['commits'] / one['weeks']:.1f}"]
        + [*map(str, (one["authors"], one["bus_factor"], *one["lines"]))]
        for one in histories
    ]
    return {"title": "Commits", "header": header, "words": 1, "rows": rows}


def commits_chart(histories):
    """Commits of every four weeks, by the time since the first one."""
    lines = [
        {
            "name": f"{one['repository']} ({one['commits']} commits, {one['authors']} authors)",
            "points": [[week, sum(one["by_week"][week : week + 4])] for week in range(0, len(one["by_week"]), 4)],
            "colour": colour,
        }
        for colour, one in enumerate(histories)
    ]
    data = [["repository", "week", "commits"]]
    data += [[one["repository"], week, count] for one in histories for week, count in enumerate(one["by_week"])]
    axes = {"x": "weeks since the first commit", "y": "commits of four weeks"}
    return {"name": "commits", "title": "Commits of every four weeks", "csv": data, "lines": {"lines": lines, **axes}}


def read(folder):
    """Everything in a folder, by the ends of the files' names; and every folder in it that is a git repository."""
    result = {"questions": [], "profiles": [], "items": [], "histories": []}
    pages, paths = [], sorted(folder.iterdir())
    of_questions = [row for path in paths if path.name.endswith("survey_questions.csv") for row in rows_of(path, ["question", "text"], "texts of questions")]
    texts = {row["question"]: row["text"] for row in of_questions}
    for path in paths:
        if (path / ".git").exists():
            result["histories"].append(history(path, git_log(path)))
        elif path.name.endswith("git_log.txt"):
            result["histories"].append(history(path, path.read_text(encoding="utf-8", errors="replace")))
        elif path.name.endswith(("issues.json", "pulls.json")):
            pages.append(path)
        elif path.name.endswith("survey_counts.csv"):
            result["questions"] += survey(path, texts)
        elif path.name.endswith("survey_profile_counts.csv"):
            result["profiles"] += profiles(path)
        elif path.name.endswith("repository_items.csv"):
            result["items"] += items(items_of_file(path))
    result["items"] += items(items_of_pages(pages))
    shown = [
        (result["questions"], survey_table, survey_charts),
        (result["profiles"], None, lambda found: map(profile_chart, found)),
        (result["items"], items_table, items_charts),
        (result["histories"], commits_table, lambda found: [commits_chart(found)]),
    ]
    result["tables"] = [table(found) for found, table, _ in shown if found and table]
    result["charts"] = [chart for found, _, charts in shown if found for chart in charts(found)]
    return result


if __name__ == "__main__":
    try:
        json.dump(read(Path(sys.argv[1])), sys.stdout)
    except (Broken, OSError) as failure:
        sys.exit(str(failure))
