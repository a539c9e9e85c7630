"""The same random numbers as in Chronodisk's own models."""

_U64 = (1 << 64) - 1
_U128 = (1 << 128) - 1
# FNV-1a, 64 bits (Fowler, Noll, Vo).
_FNV_OFFSET_BASIS = 0xCBF2_9CE4_8422_2325
_FNV_PRIME = 0x0000_0100_0000_01B3
# PCG, "MCG XSL RR 128/64" (O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for
# Random Number Generation", 2014).
_PCG_MULTIPLIER = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645


class RandomStream:
    """Random numbers of one component for one purpose; equal names and seeds give equal numbers, here and in
    Chronodisk."""

    def __init__(self, seed: int, component: str, purpose: str) -> None:
        digest = _FNV_OFFSET_BASIS ^ (seed & _U64)
        for byte in component.encode() + b"\0" + purpose.encode():
            digest = ((digest ^ byte) * _FNV_PRIME) & _U64
        self._state = int.from_bytes(_expand(digest), "little") | 1

    def next_u64(self) -> int:
        """Uniform over all 64-bit numbers."""
        self._state = (self._state * _PCG_MULTIPLIER) & _U128
        rotation = self._state >> 122
        folded = (self._state >> 64 ^ self._state) & _U64
        return (folded >> rotation | folded << (64 - rotation)) & _U64

    def below(self, bound: int) -> int:
        """Uniform over ``0..bound`` (Lemire, "Fast Random Integer Generation in an Interval", 2019)."""
        threshold = (1 << 64) % bound
        while True:
            product = self.next_u64() * bound
            if product & _U64 >= threshold:
                return product >> 64

    def unit(self) -> float:
        """Uniform over [0, 1)."""
        return float(self.next_u64() >> 11) / float(1 << 53)


def _expand(seed: int) -> bytes:
    """Sixteen bytes from 64 bits by PCG "XSH RR 64/32", as Rust's ``rand_core`` seeds its generators."""
    out = b""
    for _ in range(4):
        seed = (seed * 6_364_136_223_846_793_005 + 11_634_580_027_462_260_723) & _U64
        folded = ((seed >> 18 ^ seed) >> 27) & 0xFFFF_FFFF
        rotation = seed >> 59
        out += ((folded >> rotation | folded << (32 - rotation)) & 0xFFFF_FFFF).to_bytes(4, "little")
    return out
