"""What a dictionary of zstd would save for topics of numbers: each message alone, and chunks of 1 MiB. Prints a table.

    python scripts/bench-dictionary.py

The messages are those of a robot that turns: an Imu whose values have the steps of its 16-bit sensor, one whose values are floats with noise, and a LaserScan of
720 beams with and without whole millimetres. The dictionary of 110 KiB is trained on the first half of them; the other half is compressed, by level 1.
"""

import importlib

import numpy as np
import zstandard

small = importlib.import_module("bench-small")
CHUNK_BYTES = 1 << 20
DICTIONARY_BYTES = 110 << 10
RANDOM = np.random.default_rng(4)
DIAGONAL = [1, 0, 0, 0, 1, 0, 0, 0, 1]


def imu(number, is_of_steps):
    """Orientation, turning and acceleration, each with its covariance."""
    t = number / 200
    out = small.Cdr().head(small.START + number * 5_000_000)
    turning = np.array([0.1 * np.sin(3 * t), 0.1 * np.cos(2 * t), 0.1]) + RANDOM.normal(scale=2e-3, size=3)
    pull = np.array([0.3 * np.sin(5 * t), 0.2 * np.cos(4 * t), 9.81]) + RANDOM.normal(scale=2e-2, size=3)
    orientation, covariance = [np.sin(t / 10), 0, 0, np.cos(t / 10)], [2.5e-3 * one for one in DIAGONAL]
    if is_of_steps:
        steps = np.radians(500 / 32768), 8 * 9.81 / 32768
        turning, pull = np.round(turning / steps[0]) * steps[0], np.round(pull / steps[1]) * steps[1]
        # Drivers without an orientation send this.
        orientation, covariance = [0, 0, 0, 1], [-1] + [0] * 8
    for value in (*orientation, *covariance, *turning, *(1e-4 * one for one in DIAGONAL), *pull, *(4e-4 * one for one in DIAGONAL)):
        out.put("<f8", value)
    return out.bytes()


def scan(number, is_of_millimetres):
    """A hall of 8 by 6 metres."""
    t = number / 10
    angle = np.linspace(-np.pi, np.pi, 720, endpoint=False) + 0.05 * t
    with np.errstate(divide="ignore"):
        far = np.minimum(np.abs((4 + np.sin(t / 3)) / np.cos(angle)), np.abs(3 / np.sin(angle)))
    far = far + RANDOM.normal(scale=0.01, size=720)
    far = (np.round(far, 3) if is_of_millimetres else far).astype("<f4")
    out = small.Cdr().head(small.START + number * 100_000_000)
    for value in (-np.pi, np.pi, 2 * np.pi / 720, 0.1 / 720, 0.1, 0.12, 12):
        out.put("<f4", value)
    for values in (far, RANDOM.normal(47, 2, size=720).round().astype("<f4")):
        out.put("<u4", len(values))
        out.out += values.tobytes()
    return out.bytes()


def chunks(messages):
    whole = b"".join(messages)
    return [whole[at : at + CHUNK_BYTES] for at in range(0, len(whole), CHUNK_BYTES)]


def main():
    print("| topic | message, bytes | alone | with a dictionary | chunks | with a dictionary |\n|---|---|---|---|---|---|")
    for name, make, count in (
        ("Imu of a 16-bit sensor", lambda number: imu(number, True), 20_000),
        ("Imu, floats with noise", lambda number: imu(number, False), 20_000),
        ("LaserScan, millimetres", lambda number: scan(number, True), 2400),
        ("LaserScan, floats with noise", lambda number: scan(number, False), 2400),
    ):
        messages = [make(number) for number in range(count)]
        known, rest = messages[: count // 2], messages[count // 2 :]
        dictionary = zstandard.train_dictionary(DICTIONARY_BYTES, known)
        cells = []
        for parts in (rest, chunks(rest)):
            for more in ({}, {"dict_data": dictionary}):
                compressor = zstandard.ZstdCompressor(level=1, **more)
                cells.append(f"{sum(map(len, parts)) / sum(len(compressor.compress(part)) for part in parts):.1f}")
        print(f"| {name} | {len(messages[0])} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
