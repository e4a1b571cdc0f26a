// tests/TRAPS.md promises tests by name; this keeps the promise true when tests are renamed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace saccade::test_support {
namespace {

const std::filesystem::path kTests = SACCADE_TEST_SOURCES;

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// "Suite.Name" of every test in the tree, and "Suite.*" of every suite.
std::set<std::string> tests_in_tree() {
  static const std::regex definition(R"(TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\))");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kTests)) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = text_of(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), definition), end; match != end; ++match) {
      names.insert((*match)[1].str() + "." + (*match)[2].str());
      names.insert((*match)[1].str() + ".*");
    }
  }
  return names;
}

TEST(TrapList, NamesOnlyTestsThatExist) {
  static const std::regex mention(R"(`(\w*)\.(\w+|\*)`)");
  const std::set<std::string> tests = tests_in_tree();
  const std::string text = text_of(kTests / "TRAPS.md");
  std::string suite;
  int mentions = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), mention), end; match != end; ++match, ++mentions) {
    if ((*match)[1].length() > 0) suite = (*match)[1];  // `.Name` is of the suite named last
    const std::string name = suite + "." + (*match)[2].str();
    EXPECT_TRUE(tests.contains(name)) << "tests/TRAPS.md names " << name << ", and there is no such test";
  }
  EXPECT_GT(mentions, 60);
}

TEST(TrapList, MentionsEveryTrapTest) {
  const std::string text = text_of(kTests / "TRAPS.md");
  for (const std::string& name : tests_in_tree()) {
    if (name.rfind("Traps.", 0) != 0 || name == "Traps.*") continue;
    EXPECT_NE(text.find(name.substr(5)), std::string::npos) << name << " is not listed in tests/TRAPS.md";
  }
}

}  // namespace
}  // namespace saccade::test_support
