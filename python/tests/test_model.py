"""The package without Chronodisk: the frames are made here."""

import io
import struct
import unittest

from chronodisk.model import (
    Background,
    BackgroundDone,
    Completion,
    Device,
    Model,
    Op,
    QueueModel,
    RandomStream,
    Request,
    Status,
)
from chronodisk.model.server import MAGIC, Server

HEADER = struct.Struct("<IHHQ")


class Fixed(QueueModel):
    device = Device(name="fixed", capacity_sectors=1000)

    def end(self, request: Request, start: int) -> int:
        return start + 100


class TwoChannels(Fixed):
    channels = 2


class Scanner(Background):
    """Reads a wanted sector each 10 ns."""

    media_bytes_per_s = 512e8

    def __init__(self) -> None:
        self.left: list[int] = []
        self.since = 0

    def want(self, now: int, ranges: list[range], at_rest: bool) -> None:
        self.since = now
        self.left = sorted({*self.left, *(sector for wanted in ranges for sector in wanted)})

    def forget(self, now: int, ranges: list[range]) -> None:
        self.left = [sector for sector in self.left if not any(sector in unwanted for unwanted in ranges)]

    def wanted(self) -> int:
        return len(self.left)

    def take(self, until: int) -> list[BackgroundDone]:
        done = []
        while self.left and self.since + 10 <= until:
            self.since += 10
            done.append(BackgroundDone(self.left.pop(0), 1, self.since))
        return done


class Scanned(Fixed):
    def __init__(self, seed: int, capacity_sectors: int | None) -> None:
        super().__init__(seed, capacity_sectors)
        self.scanner = Scanner()

    def submit_anywhere(self, now: int, request: Request, places: list[int]) -> int:
        self.submit(now, request)
        return places[-1]

    def background(self) -> Background:
        return self.scanner


def frame(kind: int, sequence: int, body: bytes = b"") -> bytes:
    return HEADER.pack(len(body), kind, 0, sequence) + body


def hello(version: int = 1) -> bytes:
    return frame(1, 0, MAGIC + struct.pack("<H", version) + bytes(16))


def reset(capacity_bytes: int = 0) -> bytes:
    return frame(2, 1, struct.pack("<QQQB", 1, capacity_bytes, 0, 1) + bytes(8))


def submit(sequence: int, at: int, number: int, op: Op = Op.READ) -> bytes:
    return frame(7, sequence, struct.pack("<QQQIBBBBHHI", at, number, 0, 8, op, 1, 0, 0, 0, 0, 0))


def submit_anywhere(sequence: int, at: int, number: int, *places: int) -> bytes:
    body = struct.pack("<QQQIBBBBHHI", at, number, 0, 8, Op.WRITE, 1, 0, 0, 0, 0, 0)
    return frame(12, sequence, body + struct.pack(f"<{len(places)}Q", *places))


def ask(sequence: int, taken: int, safe_until: int) -> bytes:
    return frame(8, sequence, struct.pack("<QQ", taken, safe_until))


def say(model: type[Model], *frames: bytes) -> list[tuple[int, int, bytes]]:
    """Kind, sequence and body of each answer."""
    sink = io.BytesIO()
    Server(model, io.BytesIO(b"".join(frames)), sink).run()
    answers, rest = [], sink.getvalue()
    while rest:
        length, kind, _, sequence = HEADER.unpack_from(rest)
        answers.append((kind, sequence, rest[HEADER.size : HEADER.size + length]))
        rest = rest[HEADER.size + length :]
    return answers


class RandomStreamTest(unittest.TestCase):
    def test_it_is_chronodisks(self) -> None:
        # The golden numbers of chronodisk-sim's own test.
        stream = RandomStream(42, "test", "golden")
        self.assertEqual([stream.next_u64(), stream.next_u64()], [5_692_059_043_023_957_523, 9_790_883_522_020_472_002])

    def test_numbers_stay_below_the_bound(self) -> None:
        stream = RandomStream(7, "test", "bound")
        numbers = [stream.below(10) for _ in range(1000)]
        self.assertEqual(set(numbers), set(range(10)))
        self.assertTrue(all(0 <= stream.unit() < 1 for _ in range(100)))


class QueueModelTest(unittest.TestCase):
    def test_one_channel_serves_one_after_the_other(self) -> None:
        model = Fixed(1, None)
        model.submit(0, Request(1, Op.READ, 0, 8))
        model.submit(10, Request(2, Op.READ, 0, 8))
        self.assertEqual(model.bound(), 100)
        self.assertEqual(model.advance(99), [])
        self.assertEqual(model.advance(500), [Completion(1, 100)])
        self.assertEqual(model.advance(500), [Completion(2, 200)])

    def test_what_ends_at_one_instant_is_told_together(self) -> None:
        model = TwoChannels(1, None)
        for number in range(3):
            model.submit(0, Request(number, Op.WRITE, 0, 8))
        self.assertEqual(model.advance(100), [Completion(0, 100), Completion(1, 100)])
        self.assertEqual(model.bound(), 200)

    def test_a_discard_that_is_not_known_takes_no_time(self) -> None:
        model = Fixed(1, None)
        model.submit(5, Request(1, Op.DISCARD, 0, 8))
        self.assertEqual(model.advance(1000), [Completion(1, 6, Status.UNSUPPORTED)])


class ServerTest(unittest.TestCase):
    def test_a_session(self) -> None:
        frames = (hello(), reset(), submit(2, 0, 7), ask(3, 0, 0), ask(4, 0, 1000), ask(5, 100, 100), frame(10, 6))
        answers = say(Fixed, *frames)
        self.assertEqual([kind for kind, _, _ in answers], [0x8001, 0x8002, 0xFFFE, 0x8008, 0x8008, 0x8008, 0xFFFE])
        self.assertEqual([sequence for _, sequence, _ in answers], [0, 1, 2, 3, 4, 5, 6])
        self.assertEqual(answers[3][2], struct.pack("<BQ", 2, 100))
        self.assertEqual(answers[4][2], struct.pack("<BQQB", 1, 100, 7, 0))
        self.assertEqual(answers[5][2], b"\0")

    def test_a_write_to_any_place_goes_to_the_first_unless_the_model_chooses(self) -> None:
        for model, chosen in ((Fixed, 16), (Scanned, 800)):
            answers = say(model, hello(), reset(), submit_anywhere(2, 0, 7, 16, 24, 800), ask(3, 0, 1000))
            self.assertEqual(answers[2], (0x800C, 2, struct.pack("<Q", chosen)))
            self.assertEqual(answers[3][2], struct.pack("<BQQB", 1, 100, 7, 0))

    def test_background_requests(self) -> None:
        want = frame(13, 2, struct.pack("<QBQQ", 5, 0, 100, 110))
        forget = frame(13, 3, struct.pack("<QBQQ", 5, 2, 103, 110))
        take = frame(14, 4, struct.pack("<Q", 25))
        answers = say(Scanned, hello(), reset(), want, forget, take, frame(14, 5, struct.pack("<Q", 30)))
        self.assertEqual([answers[2][0], answers[3][0], answers[4][0]], [0xFFFE, 0xFFFE, 0x800E])
        self.assertEqual(answers[4][2], struct.pack("<Qd6Q", 1, 512e8, 100, 1, 15, 101, 1, 25))
        self.assertEqual(answers[5][2], struct.pack("<Qd", 1, 512e8))

    def test_many_background_reads_come_in_several_answers(self) -> None:
        want = frame(13, 2, struct.pack("<QBQQ", 0, 1, 0, 40_000))
        takes = [frame(14, sequence, struct.pack("<Q", 1_000_000)) for sequence in (3, 4)]
        answers = say(Scanned, hello(), reset(), want, *takes)
        self.assertEqual([(len(body) - 16) // 24 for _, _, body in answers[3:]], [1 << 15, 40_000 - (1 << 15)])

    def test_a_model_without_background_requests_says_so_and_goes_on(self) -> None:
        want = frame(13, 2, struct.pack("<QBQQ", 5, 0, 100, 110))
        answers = say(Fixed, hello(), reset(), want, submit(3, 5, 1))
        self.assertEqual((answers[2][0], answers[2][2][0]), (0xFFFF, 9))
        self.assertEqual(answers[3][0], 0xFFFE)

    def test_the_users_capacity_counts(self) -> None:
        answers = say(Fixed, hello(), reset(capacity_bytes=4096))
        self.assertEqual(struct.unpack_from("<Q", answers[1][2]), (8,))

    def test_another_version_is_refused_with_both_named(self) -> None:
        ((kind, _, body),) = say(Fixed, hello(version=2))
        self.assertEqual((kind, body[0]), (0xFFFF, 0))
        self.assertIn(b"version 1 of the protocol, and chronodisk version 2", body)

    def test_an_exception_is_told_and_raised(self) -> None:
        class Broken(Fixed):
            def end(self, request: Request, start: int) -> int:
                raise ZeroDivisionError("half a sector")

        sink = io.BytesIO()
        with self.assertRaises(ZeroDivisionError):
            Server(Broken, io.BytesIO(hello() + reset() + submit(2, 0, 1)), sink).run()
        self.assertIn(b"the model raised ZeroDivisionError: half a sector", sink.getvalue())

    def test_a_device_that_is_refused(self) -> None:
        class Small(Fixed):
            def __init__(self, seed: int, capacity_sectors: int | None) -> None:
                if capacity_sectors is not None:
                    raise ValueError("this device has one size only")
                super().__init__(seed, capacity_sectors)

        answers = say(Small, hello(), reset(capacity_bytes=512))
        self.assertEqual((answers[1][0], answers[1][2][0]), (0xFFFF, 3))


if __name__ == "__main__":
    unittest.main()
