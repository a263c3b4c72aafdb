#include "core/json.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "core/ending.hpp"

namespace emulation {

class JsonParser {
 public:
  JsonParser(const std::string& text, const std::string& where) : text_(text), where_(where) {}

  Json document() {
    Json result = value();
    skip();
    if (at_ != text_.size()) fail("more text after the end");
    return result;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    end_run(where_ + ": is no JSON: " + what + " at byte " + std::to_string(at_));
  }
  void skip() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr) ++at_;
  }
  bool take(char wanted) {
    skip();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void need(char wanted) {
    if (!take(wanted)) fail("a character is missing");
  }
  bool word(const char* wanted) {
    if (text_.compare(at_, std::strlen(wanted), wanted) != 0) return false;
    at_ += std::strlen(wanted);
    return true;
  }

  Json value() {
    skip();
    if (at_ >= text_.size()) fail("the end comes too early");
    Json result;
    const char first = text_[at_];
    if (first == '{') return object();
    if (first == '[') return array();
    if (first == '"') {
      result.kind_ = Json::Kind::string;
      result.text_ = string();
    } else if (word("true")) {
      result.kind_ = Json::Kind::boolean;
      result.number_ = 1;
    } else if (word("false")) {
      result.kind_ = Json::Kind::boolean;
    } else if (!word("null")) {
      const char* begin = text_.c_str() + at_;
      char* end = nullptr;
      result.kind_ = Json::Kind::number;
      result.number_ = std::strtod(begin, &end);
      if (end == begin) fail("no value");
      at_ += static_cast<std::size_t>(end - begin);
    }
    return result;
  }

  Json object() {
    Json result;
    result.kind_ = Json::Kind::object;
    need('{');
    if (take('}')) return result;
    do {
      skip();
      const std::string name = string();
      need(':');
      result.fields_[name] = value();
    } while (take(','));
    need('}');
    return result;
  }

  Json array() {
    Json result;
    result.kind_ = Json::Kind::array;
    need('[');
    if (take(']')) return result;
    do result.items_.push_back(value());
    while (take(','));
    need(']');
    return result;
  }

  std::string string() {
    need('"');
    std::string result;
    while (at_ < text_.size() && text_[at_] != '"') {
      char character = text_[at_++];
      if (character == '\\' && at_ < text_.size()) {
        const char escaped = text_[at_++];
        const char* const known = "n\nt\tr\rb\bf\f";
        const char* found = std::strchr(known, escaped);
        if (escaped == 'u') {
          const unsigned code = static_cast<unsigned>(std::strtoul(text_.substr(at_, 4).c_str(), nullptr, 16));
          at_ += 4;
          // What is not ASCII stands only in texts for people.
          character = code > 0x7F ? '?' : static_cast<char>(code);
        } else {
          character = found != nullptr && (found - known) % 2 == 0 ? found[1] : escaped;
        }
      }
      result += character;
    }
    need('"');
    return result;
  }

  const std::string& text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

Json Json::parse(const std::string& text, const std::string& where) { return JsonParser(text, where).document(); }

Json Json::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return parse(text, path);
}

const Json& Json::operator[](const std::string& name) const {
  static const Json none;
  const auto found = fields_.find(name);
  return found == fields_.end() ? none : found->second;
}

long long Json::integer(long long otherwise) const { return kind_ == Kind::number ? std::llround(number_) : otherwise; }

bool Json::truth(bool otherwise) const { return kind_ == Kind::boolean ? number_ != 0 : otherwise; }

}  // namespace emulation
