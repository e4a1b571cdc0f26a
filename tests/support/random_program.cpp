#include "tests/support/random_program.h"

#include <algorithm>

#include <fmt/format.h>

namespace saccade::test_support {
namespace {

constexpr double kLargestInteger = 1 << 30;
constexpr double kLargestReal = 1 << 14;  ///< with steps of 1/8 that is 17 bits, exact in f32 with room for sums

/// An expression in both languages, and a bound of its magnitude.
struct Text {
  std::string program, cpp;
  double bound = 0;
};

// Braces evaluate their list in order, arguments of a function do not: a seed must give one program with every
// compiler.
struct Operands {
  Text a;
  const char* op;
  Text b;
  double bound;
};
Text infix(const Operands& o) {
  return {fmt::format("({} {} {})", o.a.program, o.op, o.b.program), fmt::format("({} {} {})", o.a.cpp, o.op, o.b.cpp),
          o.bound};
}

struct Choice {
  Text condition, a, b;
};
Text choice(const Choice& c) {
  return {fmt::format("({} ? {} : {})", c.condition.program, c.a.program, c.b.program),
          fmt::format("({} ? {} : {})", c.condition.cpp, c.a.cpp, c.b.cpp), std::max(c.a.bound, c.b.bound)};
}

class Writer {
 public:
  Writer(Random& random, const RandomProgramSizes& sizes, RandomProgram& out)
      : random_(random), sizes_(sizes), out_(out) {}

  void declare() {
    const auto scalars = random_.between(0, 3), tables = random_.between(0, 3);
    for (std::int64_t i = 0; i < scalars; ++i) declare_scalar(fmt::format("s{}", i));
    for (std::int64_t i = 0; i < tables; ++i) declare_table(fmt::format("t{}", i));
  }

  Text condition(int depth) {
    if (depth <= 0) return comparison(0);
    switch (random_.between(0, 13)) {
      case 0:
      case 1: return infix({condition(depth - 1), "&&", condition(depth - 1), 1});
      case 2:
      case 3: return infix({condition(depth - 1), "||", condition(depth - 1), 1});
      case 4: {
        const Text a = condition(depth - 1);
        return {"(!" + a.program + ")", "(!" + a.cpp + ")", 1};
      }
      case 5: return choice({condition(depth - 1), condition(depth - 1), condition(depth - 1)});
      case 6: return infix({condition(depth - 1), random_.one_in(2) ? "==" : "!=", condition(depth - 1), 1});
      case 7: {
        const Text t = table(expr::Type::boolean);
        if (!t.program.empty()) return t;
        return comparison(depth - 1);
      }
      case 8: return infix({real(depth - 1), comparison_symbol(), real(depth - 1), 1});
      case 9: return random_.one_in(4) ? Text{"true", "true", 1} : named();
      case 10: return named();
      default: return comparison(depth - 1);
    }
  }

  Text integer(int depth) {
    if (depth <= 0) return integer_leaf();
    const Text a = integer(depth - 1);
    switch (random_.between(0, 11)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const Text b = integer(depth - 1);
        const bool fits = a.bound + b.bound < kLargestInteger;
        return fits ? infix({a, random_.one_in(2) ? "+" : "-", b, a.bound + b.bound}) : a;
      }
      case 4: {
        const Text b = integer(depth - 1);
        return a.bound * b.bound < kLargestInteger ? infix({a, "*", b, a.bound * b.bound}) : a;
      }
      case 5: {
        const Text b = random_.one_in(3) ? integer_leaf() : constant(random_.between(-3, 16));
        const bool divide = random_.one_in(2);
        return {fmt::format("({} {} {})", a.program, divide ? "//" : "%", b.program),
                fmt::format("{}({}, {})", divide ? "floor_quotient" : "floor_remainder", a.cpp, b.cpp),
                divide ? a.bound : b.bound};
      }
      case 6: {
        const Text b = integer(depth - 1);
        const char* name = random_.one_in(2) ? "min" : "max";
        return {fmt::format("{}({}, {})", name, a.program, b.program),
                fmt::format("std::{}<long long>({}, {})", name, a.cpp, b.cpp), std::max(a.bound, b.bound)};
      }
      case 7: return {fmt::format("abs({})", a.program), fmt::format("std::llabs({})", a.cpp), a.bound};
      case 8: {
        const Text b = integer(depth - 1);
        Text t = choice({condition(depth - 1), a, b});
        t.bound = std::max(a.bound, b.bound);
        return t;
      }
      case 9: {
        const Text t = table(random_.one_in(2) ? expr::Type::i32 : expr::Type::i64);
        return t.program.empty() ? a : t;
      }
      case 10: return {fmt::format("(-{})", a.program), fmt::format("(-{})", a.cpp), a.bound};
      default: {
        const Text c = condition(depth - 1);
        return {fmt::format("int({})", c.program), fmt::format("(long long)({})", c.cpp), 1};
      }
    }
  }

  /// An f32 value whose every step is exact.
  Text real(int depth) {
    switch (random_.between(0, depth <= 0 ? 2 : 7)) {
      case 0: {
        const Text t = table(expr::Type::f32);
        if (!t.program.empty()) return t;
        return real_constant();
      }
      case 1: return real_constant();
      case 2: {
        const Text a = integer(std::min(depth - 1, 1));
        if (a.bound > kLargestReal) return real_constant();
        return {fmt::format("float({})", a.program), fmt::format("(double)({})", a.cpp), a.bound};
      }
      case 3:
      case 4: {
        const Text a = real(depth - 1);
        const Text b = real(depth - 1);
        if (a.bound + b.bound > kLargestReal) return a;
        return infix({a, random_.one_in(2) ? "+" : "-", b, a.bound + b.bound});
      }
      case 5: {
        const Text a = real(depth - 1);
        const Text b = real(depth - 1);
        const char* name = random_.one_in(2) ? "min" : "max";
        return {fmt::format("{}({}, {})", name, a.program, b.program),
                fmt::format("std::{}<double>({}, {})", name, a.cpp, b.cpp), std::max(a.bound, b.bound)};
      }
      case 6: {
        const Text a = real(depth - 1);
        const char* name = random_.one_in(2) ? "abs" : "floor";
        return {fmt::format("{}({})", name, a.program), fmt::format("std::{}({})", name, a.cpp), a.bound + 1};
      }
      default: {
        const Text a = real(depth - 1);
        if (2 * a.bound > kLargestReal) return a;
        return infix({{"2.0", "2.0", 2}, "*", a, 2 * a.bound});
      }
    }
  }

  Text score() {
    Text s{"score", "r.score", 8};
    for (std::int64_t step = random_.between(1, 3); step > 0; --step) s = score_step(s);
    return s;
  }

 private:
  static Text constant(std::int64_t value) {
    return {value < 0 ? fmt::format("({})", value) : fmt::format("{}", value), fmt::format("({}LL)", value),
            static_cast<double>(std::abs(value))};
  }
  Text real_constant() {
    const double value = 0.25 * static_cast<double>(random_.between(0, 31)) + 0.125;
    return {fmt::format("{}", value), fmt::format("{}", value), 8};
  }

  static Text variable(const char* name, double bound) { return {name, fmt::format("r.{}", name), bound}; }
  Text integer_leaf() {
    switch (random_.between(0, 11)) {
      case 0:
      case 1:
      case 2: return variable("q_idx", longest());
      case 3:
      case 4:
      case 5: return variable("kv_idx", longest());
      case 6: return variable("len_q", longest());
      case 7: return variable("len_kv", longest());
      case 8: return random_.one_in(2) ? variable("h", 8) : variable("b", 8);
      case 9: return scalar(random_.one_in(2) ? expr::Type::i32 : expr::Type::i64);
      default: return constant(random_.between(-4, 40));
    }
  }

  double longest() const { return static_cast<double>(std::max(sizes_.len_q, sizes_.len_kv)); }
  const char* comparison_symbol() { return random_.pick({"==", "!=", "<", "<=", ">", ">="}); }

  Text comparison(int depth) {
    // Mostly what masks compare, so that not every mask is all or nothing.
    if (random_.one_in(2)) {
      const Text left = random_.one_in(2) ? variable("kv_idx", longest()) : integer(depth);
      const Text right = random_.one_in(2) ? variable("q_idx", longest()) : integer(depth);
      return infix({left, random_.pick({"<=", "<", ">=", ">"}), right, 1});
    }
    return infix({integer(depth), comparison_symbol(), integer(depth), 1});
  }

  /// A rule that people write, its numbers drawn.
  Text named() {
    const std::int64_t w = random_.between(0, sizes_.len_kv);
    const std::int64_t c = random_.between(1, 17);
    switch (random_.between(0, 5)) {
      case 0: return same("({0}kv_idx <= {0}q_idx)");
      case 1: return same("({0}kv_idx <= {0}q_idx + ({0}len_kv - {0}len_q))");
      case 2: return same(fmt::format("({{0}}q_idx - {{0}}kv_idx < {})", w));
      case 3: return same(fmt::format("({{0}}kv_idx < {} || {{0}}kv_idx <= {{0}}q_idx)", w));
      case 4:
        return {fmt::format("(q_idx // {0} == kv_idx // {0})", c),
                fmt::format("(floor_quotient(r.q_idx, {0}) == floor_quotient(r.kv_idx, {0}))", c), 1};
      default:
        return {fmt::format("(abs(q_idx - kv_idx) <= {})", w), fmt::format("(std::llabs(r.q_idx - r.kv_idx) <= {})", w),
                1};
    }
  }
  static Text same(const std::string& pattern) {
    return {fmt::format(fmt::runtime(pattern), ""), fmt::format(fmt::runtime(pattern), "r."), 1};
  }

  Text score_step(const Text& s) {
    switch (random_.between(0, 9)) {
      case 0:
        return {fmt::format("(4.0 * tanh({} / 4.0))", s.program), fmt::format("(4.0 * std::tanh({} / 4.0))", s.cpp), 4};
      case 1: return infix({s, "+", infix({{"0.0625", "0.0625", 1}, "*", same("({0}kv_idx - {0}q_idx)"), 8}), 16});
      case 2: {
        const Text bias = real(1);
        return bias.bound > 64 ? s : infix({s, "+", bias, s.bound + bias.bound});
      }
      case 3: return infix({s, "*", random_.one_in(2) ? Text{"0.5", "0.5", 1} : Text{"1.5", "1.5", 2}, 2 * s.bound});
      case 4: {
        const Text halved = infix({s, "*", {"0.5", "0.5", 1}, s.bound});
        return choice({condition(1), s, halved});
      }
      case 5:
        return {fmt::format("max(min({}, 6.0), -6.0)", s.program),
                fmt::format("std::max<double>(std::min<double>({}, 6.0), -6.0)", s.cpp), 6};
      case 6:
        return {fmt::format("({0} > 0.0 ? {0} : 0.25 * {0})", s.program),
                fmt::format("({0} > 0.0 ? {0} : 0.25 * {0})", s.cpp), s.bound};
      case 7:
        return {fmt::format("log(1.0 + exp(min({}, 20.0)))", s.program),
                fmt::format("std::log(1.0 + std::exp(std::min<double>({}, 20.0)))", s.cpp), 20};
      case 8:
        return {fmt::format("sqrt(1.0 + abs({}))", s.program), fmt::format("std::sqrt(1.0 + std::abs({}))", s.cpp), 8};
      default:
        return {fmt::format("({} * exp2(-0.125 * abs(q_idx - kv_idx)))", s.program),
                fmt::format("({} * std::exp2(-0.125 * (double)std::llabs(r.q_idx - r.kv_idx)))", s.cpp), s.bound};
    }
  }

  void declare_scalar(const std::string& name) {
    const auto type = random_.pick({expr::Type::i32, expr::Type::i64, expr::Type::f32});
    out_.declarations.scalars.push_back({name, type});
    const auto whole = static_cast<double>(random_.between(-2, sizes_.len_kv));
    out_.scalars.push_back(type == expr::Type::f32 ? 0.25 * whole : whole);
  }
  Text scalar(expr::Type type) {
    for (std::size_t i = 0; i < out_.declarations.scalars.size(); ++i) {
      const expr::ScalarDeclaration& s = out_.declarations.scalars[i];
      if (s.type == type) return {s.name, fmt::format("(long long)r.scalar({})", i), longest() + 2};
    }
    return constant(random_.between(0, 9));
  }

  void declare_table(const std::string& name) {
    expr::TableDeclaration declaration{name, static_cast<DataType>(random_.between(0, 13)),
                                       static_cast<int>(random_.between(1, 4))};
    RandomTable t;
    t.dtype = declaration.dtype;
    // The last dimension is indexed by positions; now and then the table is too short for them.
    const std::int64_t longest = std::max(sizes_.len_q, sizes_.len_kv);
    std::int64_t count = 1;
    for (int i = 0; i < declaration.rank; ++i) {
      const bool last = i + 1 == declaration.rank;
      t.extent.push_back(last ? std::max<std::int64_t>(longest - random_.between(0, 1), 1)
                              : random_.between(1, std::max(sizes_.heads, sizes_.batch)));
      count *= t.extent.back();
    }
    t.bytes.resize(static_cast<std::size_t>(count) * size_of(t.dtype));
    const bool runs = random_.one_in(2);  // such as document numbers
    for (std::int64_t i = 0; i < count; ++i) {
      const auto step = runs ? i % t.extent.back() * 6 / t.extent.back() : random_.between(0, 7);
      const bool real = is_float(t.dtype);
      const double value = t.dtype == DataType::boolean ? static_cast<double>(step % 2)
                           : real                       ? 0.25 * static_cast<double>(step) - 0.5
                                                        : static_cast<double>(step);
      store_from_double(t.dtype, t.bytes.data(), i, value);
    }
    out_.declarations.tables.push_back(declaration);
    out_.tables.push_back(std::move(t));
  }

  Text index(bool last) {
    if (!last) return random_.one_in(2) ? variable("b", 8) : variable("h", 8);
    switch (random_.between(0, 7)) {
      case 0: return same("({0}kv_idx - 1)");
      case 1: return {"(kv_idx // 2)", "floor_quotient(r.kv_idx, 2)", longest()};
      case 2: return same("({0}q_idx - {0}kv_idx)");
      case 3:
      case 4: return variable("q_idx", longest());
      default: return variable("kv_idx", longest());
    }
  }

  /// A read of some table of that type; empty text if there is none.
  Text table(expr::Type type) {
    for (std::size_t i = 0; i < out_.declarations.tables.size(); ++i) {
      const expr::TableDeclaration& t = out_.declarations.tables[i];
      const Text none;
      const bool whole = t.dtype >= DataType::i8 && t.dtype <= DataType::u32;
      const bool wide = t.dtype == DataType::i64 || t.dtype == DataType::u32;
      const expr::Type own = t.dtype == DataType::boolean ? expr::Type::boolean
                             : !whole                     ? expr::Type::f32
                             : wide                       ? expr::Type::i64
                                                          : expr::Type::i32;
      if (own != type) continue;
      Text read{t.name + "[", fmt::format("r.table({}, {{", i), 8};
      for (int d = 0; d < t.rank; ++d) {
        const Text position = index(d + 1 == t.rank);
        read.program += (d > 0 ? ", " : "") + position.program;
        read.cpp += (d > 0 ? ", " : "") + position.cpp;
      }
      read.program += "]";
      read.cpp += "})";
      if (type == expr::Type::boolean) read.cpp = "(" + read.cpp + " != 0)";
      if (whole) read.cpp = "(long long)" + read.cpp;
      return read;
    }
    return {};
  }

  Random& random_;
  const RandomProgramSizes& sizes_;
  RandomProgram& out_;
};

}  // namespace

expr::Bindings RandomProgram::bindings() const {
  expr::Bindings bindings;
  bindings.scalars = scalars;
  for (const RandomTable& t : tables) {
    expr::HostTable host;
    host.data = t.bytes.data();
    std::int64_t stride = 1;
    for (std::size_t i = t.extent.size(); i-- > 0;) {
      host.extent[i] = t.extent[i];
      host.stride[i] = stride;
      stride *= t.extent[i];
    }
    bindings.tables.push_back(host);
  }
  return bindings;
}

RandomProgram random_program(Random& random, const RandomProgramSizes& sizes) {
  RandomProgram program;
  Writer writer(random, sizes, program);
  writer.declare();
  const Text mask = writer.condition(static_cast<int>(random.between(0, 3)));
  const Text score = writer.score();
  program.mask = mask.program;
  program.mask_cpp = mask.cpp;
  program.score = score.program;
  program.score_cpp = score.cpp;
  return program;
}

}  // namespace saccade::test_support
