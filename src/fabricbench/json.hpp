// Writes one JSON value, in the order in which its parts are given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace fabricbench {

class Json {
 public:
  Json& begin_object() { return open('{'); }
  Json& end_object() { return close('}'); }
  Json& begin_array() { return open('['); }
  Json& end_array() { return close(']'); }
  Json& key(std::string_view name);
  Json& value(std::string_view text);
  Json& value(const char* text) { return value(std::string_view(text)); }
  Json& value(bool truth);
  Json& value(double number);
  Json& null();
  template <typename Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  Json& value(Integer number) {
    return raw(std::to_string(number));
  }
  template <typename Value>
  Json& value(const std::vector<Value>& values) {
    begin_array();
    for (const Value& item : values) value(item);
    return end_array();
  }
  template <typename Value>
  Json& field(std::string_view name, const Value& content) {
    key(name);
    return value(content);
  }
  // JSON text that was made elsewhere.
  Json& literal(std::string_view json) { return raw(json); }
  const std::string& text() const { return text_; }

 private:
  Json& open(char bracket);
  Json& close(char bracket);
  Json& raw(std::string_view content);
  void separate();

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace fabricbench
