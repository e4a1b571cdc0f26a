// Mask and score programs: expressions over b, h, q_idx, kv_idx, len_q, len_kv, score, named scalars and named tables.
//
// Grammar (lowest precedence first), all binary operators left-associative:
//   expr    := or ('?' expr ':' expr)?
//   or      := and ('||' and)*          and := not ('&&' not)*       not := '!' not | compare
//   compare := sum (('=='|'!='|'<'|'<='|'>'|'>=') sum)?              (a < b < c is an error that says so)
//   sum     := term (('+'|'-') term)*   term := unary (('*'|'/'|'//'|'%') unary)*   unary := '-' unary | primary
//   primary := number | 'true' | 'false' | name | name '[' expr (',' expr){0,3} ']' | name '(' args ')' | '(' expr ')'
// Types: bool, i32, i64, f32. Integers widen to i64 when an i64/u32 table or scalar takes part, to f32 when a float does.
// '/' is float division, in scores within 2 units in the last place where nothing jumps (conditions, floors, indices).
// '//' and '%' are floor division and floor modulo (Python's), and give 0 when the divisor is 0.
// Functions: min max abs select(c,a,b) floor exp exp2 log log2 sqrt tanh float int.
// Integers wrap at their width, except that comparisons may move terms from one side to the other as if they did not.
// A table read outside its extents gives 0. `score` is only known in score programs. f64 tables are read as f32.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "templates/common/interval.h"

namespace saccade::expr {

enum class Type : std::uint8_t { boolean, i32, i64, f32 };
std::string_view name_of(Type type);

struct ScalarDeclaration {
  std::string name;
  Type type = Type::i32;  ///< i32, i64 or f32
  bool operator==(const ScalarDeclaration&) const = default;
};

struct TableDeclaration {
  std::string name;
  DataType dtype = DataType::i32;
  int rank = 1;  ///< 1 to 4
  bool operator==(const TableDeclaration&) const = default;
};

/// The names that programs may use. Order is the order of run-time arguments. At most 16 scalars and 8 tables.
struct Declarations {
  std::vector<ScalarDeclaration> scalars;
  std::vector<TableDeclaration> tables;
  bool operator==(const Declarations&) const = default;
};

/// Names unique, not reserved, identifiers; types and ranks in range; counts within the limits.
Status validate(const Declarations& declarations);

struct Node;  // expr/node.h
using NodePtr = std::shared_ptr<const Node>;

enum class Kind : std::uint8_t { mask, score };

/// An immutable, type-checked program in canonical form. Two programs that simplify alike compare equal and print
/// alike.
class Program {
 public:
  /// The identity: `true` for a mask, `score` for a score program.
  explicit Program(Kind kind = Kind::mask);

  /// Parses, checks and simplifies. Errors carry line, column, the source line and a caret below the place.
  static Expected<Program> parse(Kind kind, std::string_view text, const Declarations& declarations);

  Kind kind() const { return kind_; }
  bool is_identity() const;
  /// Canonical text; parses back to an equal program.
  const std::string& text() const { return text_; }
  const NodePtr& root() const { return root_; }
  bool uses_batch() const;  ///< b
  bool uses_head() const;   ///< h
  bool uses_table(int index) const;
  bool reads_tables() const;
  bool uses_scalar(int index) const;
  bool operator==(const Program& other) const { return kind_ == other.kind_ && text_ == other.text_; }

 private:
  Kind kind_;
  NodePtr root_;
  std::string text_;
};

// Host evaluation: the oracle and the cost model

struct HostTable {
  const void* data = nullptr;  ///< host memory; may be null when only tile classes are wanted (then reads are unknown)
  std::int64_t extent[4] = {};
  std::int64_t stride[4] = {};
};

/// Run-time values that a program needs, on the host. Integer scalars hold exact integers of their type: whoever makes
/// bindings of a user's values refuses an i64 beyond 2^53 (a double may round it, and 2^63 is none). Runs are not
/// concerned: kernels take integers.
struct Bindings {
  std::vector<double> scalars;
  std::vector<HostTable> tables;
};

struct Point {
  std::int64_t b = 0, h = 0, q_idx = 0, kv_idx = 0, len_q = 0, len_kv = 0;
};

/// Float64 evaluation of a score at one element. A mask gives 0 or 1; its floats are rounded to f32 after each
/// operation, as kernels do, so that both decide alike.
double evaluate(const Program& program, const Declarations& declarations, const Bindings& bindings, const Point& point,
                double score = 0);

/// Inclusive index ranges of one tile of one (batch, head).
struct TileRange {
  std::int64_t b = 0, h = 0;
  std::int64_t q_first = 0, q_last = 0;
  std::int64_t kv_first = 0, kv_last = 0;
  std::int64_t len_q = 0, len_kv = 0;
};

/// Sound: `empty` and `full` are proofs, `mixed` is not. Tables without data make their reads unknown.
TileClass classify(const Program& mask, const Declarations& declarations, const Bindings& bindings,
                   const TileRange& tile);

/// Half-open KV range outside which the mask keeps nothing for rows q_first..q_last. Sound, within [0, len_kv).
struct KvRange {
  std::int64_t begin = 0, end = 0;
};
KvRange kv_range(const Program& mask, const Declarations& declarations, const Bindings& bindings,
                 const TileRange& rows);

// Emission

/// How tile_class comes by the ranges of the tables that it looks at.
enum class TableRanges {
  read,  ///< reads them
  /// Is given what depends on a tile's keys alone and on its queries alone, for kernels that classify many tiles of the same
  /// queries. Each `lanes` lanes of a warp read a range together:
  ///   struct KeyRanges {...}; struct QueryRanges {...};
  ///   template <int lanes> SACCADE_FN static KeyRanges key_ranges(const KernelParams& p, const Tile& t);
  ///   template <int lanes> SACCADE_FN static QueryRanges query_ranges(const KernelParams& p, const Tile& t);
  ///   SACCADE_FN static TileClass tile_class(const KernelParams& p, const Tile& t, const QueryRanges& queries,
  ///                                          const KeyRanges& keys);  // not warp-uniform
  given,
};

/// The C++ text of `struct Rules` that kernels are instantiated with; the same text serves CUDA and CPU:
///
///   struct Rules {
///     static constexpr bool has_mask = ..., has_score = ...;
///     SACCADE_FN static bool keep(const KernelParams& p, const Element& e);               // the mask at one element
///     SACCADE_FN static float score(const KernelParams& p, const Element& e, float score);  // natural-log domain
///     SACCADE_FN static TileClass tile_class(const KernelParams& p, const Tile& t);       // warp-uniform on CUDA
///     SACCADE_FN static KvRange kv_range(const KernelParams& p, const Tile& t);           // ignores t.kv_first/last
///   };
///
/// Element {int b, h, q_idx, kv_idx, len_q, len_kv;} and Tile {int b, h, q_first, q_last, kv_first, kv_last, len_q,
/// len_kv;} (inclusive ranges) and KvRange {int begin, end;} stand in templates/common/rules.h, with the helpers that
/// the emitted text calls (interval arithmetic in interval.h; table_load and table_range in table.h; math by target).
/// Deterministic, formatted as clang-format would with 2-space indent and 120 columns, each function preceded by a
/// `///` line with the canonical program.
std::string emit_rules(const Program& mask, const Program& score, const Declarations& declarations,
                       TableRanges ranges = TableRanges::read);

// Named constructors: text of the common rules, combinable as (a) && (b)

namespace rules {
std::string causal_top_left();      ///< kv_idx <= q_idx
std::string causal_bottom_right();  ///< kv_idx <= q_idx + (len_kv - len_q)
/// Keeps i-left .. i+right (inclusive), i bottom-right aligned if asked. Each is an integer text or an integer scalar's
/// name; a negative bound, also one given at run time, is unbounded.
std::string window(std::string_view left, std::string_view right, bool bottom_right);
std::string prefix(std::string_view length);                    ///< kv_idx < length || causal
std::string chunked(std::string_view chunk);                    ///< q_idx // chunk == kv_idx // chunk
std::string document(std::string_view table);                   ///< table[b, q_idx] == table[b, kv_idx] (rank-2 table)
std::string alibi(std::string_view slopes, bool bottom_right);  ///< score + slopes[h] * (kv_idx - q_idx [- shift])
std::string softcap(std::string_view cap);                      ///< cap * tanh(score / cap)
std::string bias(std::string_view table);  ///< score + table[b, h, q_idx, kv_idx] (rank-4; stride 0 broadcasts)
}  // namespace rules

}  // namespace saccade::expr
