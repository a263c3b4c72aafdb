#include <limits>

#include "check.hpp"
#include "fabricbench/json.hpp"

using fabricbench::Json;

TEST(json_writes_nested_values_in_order) {
  Json json;
  json.begin_object()
      .field("a", 1)
      .key("b")
      .begin_array()
      .value(true)
      .value(2.5)
      .null()
      .end_array()
      .field("c", std::vector<int>{})
      .end_object();
  CHECK_EQUAL(json.text(), R"({"a":1,"b":[true,2.5,null],"c":[]})");
}

TEST(json_keeps_64_bits) {
  CHECK_EQUAL(Json().value(std::numeric_limits<std::int64_t>::max()).text(), "9223372036854775807");
  CHECK_EQUAL(Json().value(std::numeric_limits<std::uint64_t>::max()).text(), "18446744073709551615");
}

TEST(json_never_writes_nan_or_infinity) {
  CHECK_EQUAL(Json().value(std::numeric_limits<double>::quiet_NaN()).text(), "null");
  CHECK_EQUAL(Json().value(std::numeric_limits<double>::infinity()).text(), "null");
}

TEST(json_escapes_what_a_host_name_or_variable_may_hold) {
  CHECK_EQUAL(Json().value("a\"b\\c\n\x01").text(), R"("a\"b\\c\u000a\u0001")");
  CHECK_EQUAL(Json().value("\xC3\xA9").text(), "\"\xC3\xA9\"");
  CHECK_EQUAL(Json().value("\xFFx\xC3").text(), R"("\ufffdx\ufffd")");
  CHECK_EQUAL(Json().value("\xED\xA0\x80").text(), R"("\ufffd\ufffd\ufffd")");
}
