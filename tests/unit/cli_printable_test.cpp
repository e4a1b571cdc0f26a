#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>

#include "cli/output.h"

namespace saccade::cli {
namespace {

TEST(Printable, WhatATerminalObeysIsEscaped) {
  EXPECT_EQ(printable("\x1b[2J\a\r\x7f"), "\\x1b[2J\\x07\\x0d\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");  // CSI as one C1 character
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xae"
            "b");  // right-to-left override
  EXPECT_EQ(printable(std::string(1, '\0')), "\\x00");
}

TEST(Printable, WhatIsNoUtf8IsEscapedByteByByte) {
  for (const char* text :
       {"\x9b", "\xff", "\xc3", "\xe2\x82", "\xc0\x9b", "\xe0\x80\x9b", "\xed\xa0\x80", "\xf4\x90\x80\x80"})
    for (const char c : printable(text)) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << text;
  EXPECT_EQ(printable("\xc3"
                      "a"),
            "\\xc3"
            "a");
}

TEST(Printable, OrdinaryTextStays) {
  const std::string text = "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n\tx";
  EXPECT_EQ(printable(text), text);
}

TEST(Printable, ANameIsOneShortLine) {
  EXPECT_EQ(printable_name("a\nb\tc"), "a\\x0ab\\x09c");
  EXPECT_LT(printable_name(std::string(1 << 20, 'x')).size(), 200U);
}

TEST(Text, TakesEscapeSequencesFromNoPlainString) {
  Text text = std::string("\x1b[31m");
  text += "\x1b";
  EXPECT_EQ((text + coloured(Colour::red, "\x1b")).shown(), "\\x1b[31m\\x1b\\x1b");  // no terminal, no colour
}

TEST(TextTable, ACellIsOneLine) {
  TextTable table({"name", ">size"});
  table.add({"a\nb\x1b", "1"});
  EXPECT_EQ(table.text().shown(), "name     size\na b\\x1b     1");
}

}  // namespace
}  // namespace saccade::cli
