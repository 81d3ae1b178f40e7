#pragma once
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gristmill::jinja {

class Value;
class Dict;
class Object;
using List = std::vector<Value>;

/// The types of a template's world, as Python names them. `object` covers macros, namespaces, generators and the like;
/// `missing` marks a variable that has no value yet and never leaves the interpreter.
enum class Kind : uint8_t { missing, undefined, none, boolean, integer, real, string, list, tuple, dict, object };

/// Lists, dicts and objects hold each other at most this deep; building anything deeper throws. It keeps every walk
/// over a value (printing, comparing, destroying) within the stack.
inline constexpr int max_value_depth = 300;

/// The shared part of a value: reference counted, and immutable but for namespaces.
struct Shared {
  std::atomic<uint32_t> references{0};
  int32_t depth = 0;
  Shared() = default;
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  virtual ~Shared() = default;
};

/// A counted pointer to a Shared.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* target) : target_(target) { retain(); }
  Ref(const Ref& other) : target_(other.target_) { retain(); }
  Ref(Ref&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(target_, other.target_);
    return *this;
  }
  ~Ref() {
    if (target_ && target_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete target_;
  }
  T* get() const { return target_; }
  T& operator*() const { return *target_; }
  T* operator->() const { return target_; }
  explicit operator bool() const { return target_ != nullptr; }

 private:
  void retain() {
    if (target_) target_->references.fetch_add(1, std::memory_order_relaxed);
  }
  T* target_ = nullptr;
};

/// Text in UTF-8. Bytes that are not UTF-8 count as one code point each and are kept as they are.
struct SharedText final : Shared {
  explicit SharedText(std::string value) : text(std::move(value)) {}
  const std::string text;
  mutable std::atomic<int64_t> code_points{-1};  ///< counted at first use
};

/// What an undefined value stands for; decides the message when it is used.
enum class Absence : uint8_t { variable, attribute, element, hint };

/// A value of a template. Small and cheap to copy; the contents are shared and immutable, so values may be read by
/// several threads at once. Default-constructed it is undefined.
class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) : kind_(Kind::none) {}
  template <std::same_as<bool> B>
  Value(B value) : kind_(Kind::boolean) {
    data_.boolean = value;
  }
  template <std::integral I>
    requires(!std::same_as<I, bool> && !std::same_as<I, char>)
  Value(I value) : kind_(Kind::integer) {
    data_.integer = static_cast<int64_t>(value);
  }
  Value(double value) : kind_(Kind::real) { data_.real = value; }
  Value(std::string text);
  Value(std::string_view text);
  Value(const char* text);
  Value(List items);
  Value(Dict items);
  Value(Ref<Object> object);

  static Value tuple(List items);
  static Value missing();
  /// Text that HTML escaping has been applied to (markupsafe's Markup, what |safe and |escape return).
  static Value markup(std::string text);
  /// The undefined value of a missing variable, or one with a message of its own.
  static Value undefined_variable(const Value& name);
  static Value undefined_hint(std::string message);
  /// What `owner.name` or `owner[name]` gives when there is no such thing.
  static Value undefined_member(const Value& owner, const Value& name);

  Value(const Value& other) : kind_(other.kind_), mark_(other.mark_), owner_(other.owner_), data_(other.data_) {
    if (counted()) data_.shared->references.fetch_add(1, std::memory_order_relaxed);
  }
  Value(Value&& other) noexcept : kind_(other.kind_), mark_(other.mark_), owner_(other.owner_), data_(other.data_) {
    other.kind_ = Kind::none;
  }
  Value& operator=(const Value& other) {
    Value copy(other);
    swap(copy);
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Value() {
    if (counted() && data_.shared->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete data_.shared;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_missing() const { return kind_ == Kind::missing; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_markup() const { return kind_ == Kind::string && mark_ != 0; }
  bool is_dict() const { return kind_ == Kind::dict; }
  /// A list or a tuple.
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  /// Integers and booleans, which Python counts as integers.
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }

  // The contents; the kind must be right.
  bool boolean() const { return data_.boolean; }
  int64_t integer() const { return kind_ == Kind::boolean ? int64_t{data_.boolean} : data_.integer; }
  double real() const { return kind_ == Kind::real ? data_.real : static_cast<double>(integer()); }
  const std::string& string() const { return static_cast<const SharedText*>(data_.shared)->text; }
  const List& list() const;
  const Dict& dict() const;
  Object& object() const;
  /// The object if this is one of class T, else null.
  template <class T>
  T* as() const {
    return kind_ == Kind::object ? dynamic_cast<T*>(data_.shared) : nullptr;
  }

  /// Code points of a string.
  size_t text_length() const;
  /// How deep lists, dicts and objects are nested in this value; 0 for a scalar.
  int depth() const { return kind_ >= Kind::list ? data_.shared->depth : 0; }
  /// Whether both are the very same object (Python's `is`).
  bool same_as(const Value& other) const;
  /// Python's type(x).__name__.
  std::string_view type_name() const;
  /// The message of jinja2's UndefinedError for this undefined value.
  std::string undefined_message() const;

 private:
  bool counted() const { return kind_ >= Kind::string || (kind_ == Kind::undefined && data_.shared != nullptr); }
  void swap(Value& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(mark_, other.mark_);
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
  }
  static Value adopt(Kind kind, Shared* shared);

  Kind kind_ = Kind::undefined;
  uint8_t mark_ = 0;              ///< string: is markup; undefined: Absence
  Kind owner_ = Kind::undefined;  ///< undefined: the kind that lacks the attribute or element
  union Data {
    bool boolean;
    int64_t integer;
    double real;
    Shared* shared = nullptr;
  } data_;
};

/// A dict in insertion order. Keys are scalars, strings and tuples of them; 1, 1.0 and True are one key, as in Python.
class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
    uint64_t hash;
  };

  Dict() = default;
  Dict(std::initializer_list<std::pair<Value, Value>> entries);

  /// Throws TemplateError for an unhashable key.
  void set(Value key, Value value);
  /// Null if absent. Throws TemplateError for an unhashable key.
  const Value* find(const Value& key) const;
  template <std::convertible_to<std::string_view> Text>
  const Value* find(const Text& key) const {
    return find_text(key);
  }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  const Entry& operator[](size_t index) const { return entries_[index]; }
  void clear() {
    entries_.clear();
    slots_.clear();
  }

 private:
  const Value* find_text(std::string_view key) const;
  template <class Matches>
  size_t locate(uint64_t hash, const Matches& matches) const;
  void index_entry(size_t entry);

  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  ///< open addressing, entry + 1; empty while the dict is small
};

struct SharedList final : Shared {
  explicit SharedList(List value);
  const List items;
};

struct SharedDict final : Shared {
  explicit SharedDict(Dict value);
  const Dict items;
};

/// Throws if something holding values of this depth would be nested too deeply, else returns its own depth.
int depth_around(int inner);

/// The arguments of a call.
struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A function of the host, to be put into the context: `context.set("now", function("now", ...))`. It may be called by
/// several renders at once, and may throw TemplateError (without position).
Value function(std::string name, std::function<Value(const Arguments&)> body);

/// Python's truth of a value.
bool truth(const Value& value);

}  // namespace gristmill::jinja
