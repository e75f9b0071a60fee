// SPDX-License-Identifier: MIT
#pragma once
// A JSON value tree. Its destructor does not allocate, so it works when memory is exhausted: a
// destructor cannot report errors.

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace moe {

class JsonItem;  // element of a braced list

class Json {
 public:
  using Item = JsonItem;
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  // Constructors, the assignment and the destructor are defined in one file: each file that
  // includes this one would instantiate the cases of std::variant, which is a quarter of the time
  // to compile an importer.
  Json() noexcept;
  Json(const Json& other);
  Json(Json&& other) noexcept;           // leaves null
  Json& operator=(Json other) noexcept;  // by value: may be a part of this one
  ~Json();
  Json(std::nullptr_t) : Json() {}  // NOLINT: a value is a Json
  Json(bool value);                 // NOLINT
  Json(const char* text);           // NOLINT
  Json(std::string text);           // NOLINT
  Json(Array elements);             // NOLINT
  template <std::integral T>
  Json(T value)  // NOLINT
      : Json(std::is_signed_v<T> ? of_signed(static_cast<int64_t>(value))
                                 : of_unsigned(static_cast<uint64_t>(value))) {}
  template <std::floating_point T>
  Json(T value) : Json(of_float(static_cast<double>(value))) {}  // NOLINT
  template <class T>
  Json(const std::vector<T>& elements)  // NOLINT
      : Json(Array(elements.begin(), elements.end())) {}
  /// An object if every element is a pair that begins with a string; otherwise an array.
  Json(std::initializer_list<Item> list);
  static Json array() { return Json(Array()); }
  static Json array(std::initializer_list<Item> list);
  static Json object();

  bool is_null() const { return holds<std::nullptr_t>(); }
  bool is_boolean() const { return holds<bool>(); }
  bool is_string() const { return holds<Held<std::string>>(); }
  bool is_array() const { return holds<Held<Array>>(); }
  bool is_object() const { return holds<Held<Object>>(); }
  /// Not negative.
  bool is_number_unsigned() const { return holds<uint64_t>(); }
  bool is_number_integer() const { return holds<uint64_t>() || holds<int64_t>(); }
  bool is_number() const { return is_number_integer() || holds<double>(); }

  /// bool, std::string, a number (converted like static_cast), or a std::vector of them. Throws
  /// std::bad_variant_access for another kind.
  template <class T>
  T get() const;
  const std::string& text() const { return *std::get<Held<std::string>>(value_); }
  const Array& elements() const { return *std::get<Held<Array>>(value_); }
  Array& elements() { return *std::get<Held<Array>>(value_); }
  const Object& items() const { return *std::get<Held<Object>>(value_); }
  Object& items() { return *std::get<Held<Object>>(value_); }

  /// The number of elements or members; 0 for any other value.
  size_t size() const;
  Array::const_iterator begin() const { return elements().begin(); }
  Array::const_iterator end() const { return elements().end(); }
  template <std::integral I>
  const Json& operator[](I i) const {
    return elements()[static_cast<size_t>(i)];
  }
  template <std::integral I>
  Json& operator[](I i) {
    return elements()[static_cast<size_t>(i)];
  }
  void push_back(Json value) { elements().push_back(std::move(value)); }

  /// Null if this is not an object or has no such member.
  const Json* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// Throws std::out_of_range if missing.
  const Json& at(std::string_view key) const;
  /// The member, created if missing; null becomes an object.
  Json& operator[](const std::string& key);
  Json& operator[](const char* key) { return (*this)[std::string(key)]; }
  void erase(std::string_view key);
  /// RFC 7396.
  void merge_patch(const Json& patch);

  /// ASCII; invalid UTF-8 is replaced.
  std::string dump() const;

  /// Compares numbers by value: 1 equals 1.0.
  friend bool operator==(const Json& a, const Json& b);

 private:
  // Owned memory, copied with its owner.
  template <class T>
  class Held {
   public:
    Held() : pointer_(std::make_unique<T>()) {}
    explicit Held(T value) : pointer_(std::make_unique<T>(std::move(value))) {}
    Held(const Held& other) : pointer_(std::make_unique<T>(*other)) {}
    Held(Held&&) noexcept = default;
    Held& operator=(const Held& other) { return *this = Held(other); }
    Held& operator=(Held&&) noexcept = default;
    ~Held() = default;
    T& operator*() { return *pointer_; }
    const T& operator*() const { return *pointer_; }

   private:
    std::unique_ptr<T> pointer_;
  };

  static Json of_signed(int64_t value);
  static Json of_unsigned(uint64_t value);
  static Json of_float(double value);

  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }
  template <class T>
  T number() const {
    if (const auto* n = std::get_if<int64_t>(&value_)) return static_cast<T>(*n);
    if (const auto* n = std::get_if<uint64_t>(&value_)) return static_cast<T>(*n);
    return static_cast<T>(std::get<double>(value_));
  }
  template <class T>
  void get_to(std::vector<T>& out) const {
    out.reserve(size());
    for (const Json& element : elements()) out.push_back(element.get<T>());
  }

  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, Held<std::string>, Held<Array>,
               Held<Object>>
      value_;
};

class JsonItem {
 public:
  template <class T>
  requires std::convertible_to<T&&, Json> JsonItem(T&& value)
      : value_(std::forward<T>(value)) {}                           // NOLINT
  JsonItem(std::initializer_list<JsonItem> list) : value_(list) {}  // NOLINT
  /// Initializer lists are read-only; this element can be moved from.
  Json& value() const { return value_; }

 private:
  mutable Json value_;
};

template <class T>
T Json::get() const {
  if constexpr (std::is_same_v<T, bool>) {
    return std::get<bool>(value_);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return number<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text();
  } else {
    T out;
    get_to(out);
    return out;
  }
}

}  // namespace moe
