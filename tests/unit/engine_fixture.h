// An engine on the doubles of engine_fakes.h, with a cache of its own that goes with the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/unit/engine_fakes.h"

namespace saccade {

class EngineFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    fakes::reset();
    std::string pattern = (std::filesystem::temp_directory_path() / "saccade-engine-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    engine_ = new_engine();
    shape_.batch = 2;
    shape_.heads_q = shape_.heads_kv = 4;
    shape_.seqlen_q = shape_.seqlen_kv = 512;
  }
  void TearDown() override {
    engine_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::shared_ptr<Engine> new_engine(const std::string& capture = {}) const {
    EngineOptions options;
    options.cache.directory = folder_;
    options.cache.finds_packs = false;
    options.capture = capture;
    return *Engine::create(options);
  }
  const Family& family() const { return *find_family(fakes::kFamily); }

  std::filesystem::path folder_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const Device> device_ = fakes::device();
  Problem problem_;
  Shape shape_;
  PrepareOptions options_;
};

}  // namespace saccade
