#include "fabricbench/json.hpp"

#include <cmath>
#include <cstdio>

namespace fabricbench {
namespace {

// Length of the well-formed UTF-8 sequence at `text`, or 0: host names and variables may hold any bytes.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
      (first == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const char c = text.front();
    std::size_t length = utf8_length(text);
    if (length == 0) {
      result += "\\ufffd";
      length = 1;
    } else if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
      result += buffer;
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return result + '"';
}

}  // namespace

void Json::separate() {
  if (needs_comma_) text_ += ',';
  needs_comma_ = true;
}

Json& Json::open(char bracket) {
  separate();
  text_ += bracket;
  needs_comma_ = false;
  return *this;
}

Json& Json::close(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
  return *this;
}

Json& Json::raw(std::string_view content) {
  separate();
  text_ += content;
  return *this;
}

Json& Json::key(std::string_view name) {
  raw(quoted(name));
  text_ += ':';
  needs_comma_ = false;
  return *this;
}

Json& Json::value(std::string_view text) { return raw(quoted(text)); }

Json& Json::value(bool truth) { return raw(truth ? "true" : "false"); }

Json& Json::value(double number) {
  if (!std::isfinite(number)) return null();
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", number);
  return raw(buffer);
}

Json& Json::null() { return raw("null"); }

}  // namespace fabricbench
