// A reader of JSON (RFC 8259), for the description of a node and its faults.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace emulation {

class Json {
 public:
  // The document in `text`; ends the run with `where` in the message if it is none.
  static Json parse(const std::string& text, const std::string& where);
  // The document in a file; null where there is no such file.
  static Json read(const std::string& path);

  bool is_null() const { return kind_ == Kind::null; }
  bool is_object() const { return kind_ == Kind::object; }
  bool is_array() const { return kind_ == Kind::array; }
  // The field of an object, or null.
  const Json& operator[](const std::string& name) const;
  bool has(const std::string& name) const { return fields_.count(name) != 0; }
  const std::vector<Json>& items() const { return items_; }
  const std::map<std::string, Json>& fields() const { return fields_; }

  double number(double otherwise = 0) const { return kind_ == Kind::number ? number_ : otherwise; }
  long long integer(long long otherwise = 0) const;
  std::string text(const std::string& otherwise = "") const { return kind_ == Kind::string ? text_ : otherwise; }
  bool truth(bool otherwise = false) const;

 private:
  friend class JsonParser;
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind_ = Kind::null;
  double number_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::map<std::string, Json> fields_;
};

}  // namespace emulation
