// A random generator whose values are the same with every standard library, so that a seed is a reproducer.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace saccade::test_support {

/// SplitMix64 (Steele, Lea and Flood, 2014): any seed is a good seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// In [first, last], both included.
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(last - first + 1));
  }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  ///< in [0, 1)
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  /// Standard normal (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    return radius * std::cos(2 * 3.14159265358979323846 * unit());
  }
  template <class T>
  const T& pick(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(choices.size()) - 1))];
  }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return *(choices.begin() + between(0, static_cast<std::int64_t>(choices.size()) - 1));
  }

 private:
  std::uint64_t state_;
};

}  // namespace saccade::test_support
