// Writes JSON on one line, in the order in which it is told.
//
// Commas are put in by looking at what was written last, so there is no state to get wrong. Keys
// are literals; only values are escaped.
#ifndef RAILHOP_CC_FABRIC_JSON_WRITER_H_
#define RAILHOP_CC_FABRIC_JSON_WRITER_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace railhop::fabric {

class JsonWriter {
 public:
  JsonWriter& Begin(char bracket) {  // '{' or '['
    Comma();
    text_ += bracket;
    return *this;
  }
  JsonWriter& End(char bracket) {  // '}' or ']'
    text_ += bracket;
    return *this;
  }
  JsonWriter& Key(std::string_view key) {
    Comma();
    text_ += '"';
    text_ += key;
    text_ += "\":";
    return *this;
  }
  JsonWriter& String(std::string_view value) {
    Comma();
    text_ += '"';
    for (const char c : value) Escape(static_cast<unsigned char>(c));
    text_ += '"';
    return *this;
  }
  JsonWriter& Number(uint64_t value) {
    Comma();
    text_ += std::to_string(value);
    return *this;
  }
  JsonWriter& Real(double value) {
    Comma();
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%.9g", value);
    text_ += digits;
    return *this;
  }
  JsonWriter& Bool(bool value) {
    Comma();
    text_ += value ? "true" : "false";
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void Comma() {
    if (text_.empty()) return;
    const char last = text_.back();
    if (last != '{' && last != '[' && last != ':') text_ += ',';
  }
  void Escape(unsigned char c) {
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {
      // Bytes that are no ASCII stand for themselves in Latin-1: whatever came in, JSON comes out.
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      text_ += code;
    } else {
      text_ += static_cast<char>(c);
    }
  }

  std::string text_;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_JSON_WRITER_H_
