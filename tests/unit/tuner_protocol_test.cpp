#include "tuner/protocol.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tuner/report.h"

namespace saccade::tuner {
namespace {

Schedule schedule() { return {"cpu.fwd", {{"tile_m", 64}, {"tile_n", 32}}}; }

template <class T>
T round_trip(const protocol::Request& request) {
  const Expected<protocol::Request> decoded = protocol::decode_request(protocol::encode(request));
  EXPECT_TRUE(decoded.ok()) << decoded.status().message();
  return std::get<T>(*decoded);
}

template <class T>
T round_trip(const protocol::Reply& reply) {
  const Expected<protocol::Reply> decoded = protocol::decode_reply(protocol::encode(reply));
  EXPECT_TRUE(decoded.ok()) << decoded.status().message();
  return std::get<T>(*decoded);
}

TEST(Protocol, OpenSurvivesTheTrip) {
  protocol::Open open;
  open.problem.problem.head_dim_qk = 128;
  open.problem.problem.lse = true;
  open.problem.shape = {.batch = 2, .heads_q = 8, .heads_kv = 2, .seqlen_q = 100, .seqlen_kv = 4096, .alignment = 4};
  open.problem.predicted_us = 12.5;
  open.problem.measurement.seed = ~std::uint64_t{0};
  open.scalars = {256, -0.0, std::numeric_limits<double>::infinity(), 0.1};
  protocol::WireTable table;
  table.has_data = true;
  table.offset = 64;
  table.bytes = std::int64_t{1} << 40;
  table.extent[0] = 3;
  table.stride[3] = -7;
  open.tables = {table};
  open.sm_count = 112;
  open.cache_directory = "/a folder/with \"quotes\"";
  const protocol::Open back = round_trip<protocol::Open>(open);
  EXPECT_EQ(back.problem.problem, open.problem.problem);
  EXPECT_EQ(back.problem.shape, open.problem.shape);
  EXPECT_EQ(back.problem.measurement.seed, open.problem.measurement.seed);
  EXPECT_EQ(back.scalars, open.scalars);
  EXPECT_EQ(back.sm_count, 112);
  ASSERT_EQ(back.tables.size(), 1u);
  EXPECT_EQ(back.tables[0].bytes, table.bytes);
  EXPECT_EQ(back.tables[0].stride[3], -7);
  EXPECT_EQ(back.cache_directory, open.cache_directory);
}

TEST(Protocol, EveryOtherRequestSurvivesTheTrip) {
  EXPECT_EQ(round_trip<protocol::Add>(protocol::Add{7, schedule(), true}).schedule, schedule());
  EXPECT_EQ(round_trip<protocol::Time>(protocol::Time{{3, 1, 2}}).ids, (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(round_trip<protocol::Drop>(protocol::Drop{9}).id, 9);
  EXPECT_EQ(round_trip<protocol::Prefetch>(protocol::Prefetch{{schedule()}}).schedules.size(), 1u);
}

TEST(Protocol, RepliesSurviveTheTrip) {
  AddOutcome outcome;
  outcome.fault = Fault::wrong_result;
  outcome.reason = "o[0] is NaN";
  outcome.error = std::numeric_limits<double>::quiet_NaN();
  const protocol::Added added = round_trip<protocol::Added>(protocol::Added{4, outcome});
  EXPECT_EQ(added.outcome.fault, Fault::wrong_result);
  EXPECT_TRUE(std::isnan(added.outcome.error));
  EXPECT_EQ(round_trip<protocol::PhaseStart>(protocol::PhaseStart{protocol::Phase::warm, 2}).phase,
            protocol::Phase::warm);
  EXPECT_EQ(round_trip<Sample>(Sample{1, 2.25}).us, 2.25);
  const protocol::Error error = round_trip<protocol::Error>(protocol::Error{Status::not_found("no such")});
  EXPECT_EQ(error.status.code(), StatusCode::not_found);
}

TEST(Protocol, LogsThatAreNotUtf8DoNotBreakALine) {
  AddOutcome outcome;
  outcome.fault = Fault::compile_failed;
  outcome.reason = "bad \xff\xfe byte\nand a newline";
  const std::string line = protocol::encode(protocol::Added{1, outcome});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(protocol::decode_reply(line).ok());
}

TEST(Protocol, GarbageIsRefusedWithAReason) {
  for (const char* line :
       {"", "garbage", "[]", "{}", "null", "{\"reply\":\"sample\"}", "{\"reply\":\"sample\",\"id\":\"x\",\"us\":1}",
        "{\"reply\":\"phase\",\"phase\":\"lunch\",\"id\":1}", "{\"reply\":\"error\",\"code\":99,\"message\":\"\"}",
        "{\"reply\":\"error\",\"code\":0,\"message\":\"\"}", "{\"reply\":17}", "\x00\x01", "{\"reply\":\"done\""}) {
    const Expected<protocol::Reply> reply = protocol::decode_reply(line);
    EXPECT_FALSE(reply.ok()) << line;
    EXPECT_FALSE(reply.status().message().empty());
  }
  for (const char* line : {"{\"command\":\"fly\"}", "{\"command\":\"add\",\"id\":1,\"schedule\":3,\"trusted\":false}",
                           "{\"command\":\"time\",\"ids\":[\"a\"]}"}) {
    EXPECT_FALSE(protocol::decode_request(line).ok()) << line;
  }
}

TEST(Protocol, OverlongMessagesAreRefused) {
  EXPECT_FALSE(protocol::decode_reply(std::string(protocol::kMaxLineBytes + 1, 'x')).ok());
}

TEST(Journal, RemembersAMeasurementAgainstItsDefault) {
  const Remembered measured{0.875, 0.01, 123.5};
  const std::string text = to_json(measured, schedule());
  const std::optional<Remembered> back = remembered_from_json(text, schedule());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->ratio, 0.875);
  EXPECT_EQ(back->median_us, 123.5);
  Schedule other = schedule();
  other.params["tile_m"] = 128;
  EXPECT_FALSE(remembered_from_json(text, other).has_value()) << "ratios to another default mean nothing";
}

TEST(Journal, MalformedRowsAreMisses) {
  for (const char* text : {"", "{", "[]", "{\"ratio\":1}", "{\"ratio\":\"x\",\"error\":0,\"us\":1}"}) {
    EXPECT_FALSE(remembered_from_json(text, schedule()).has_value()) << text;
  }
}

TEST(Journal, KeysDifferFromTunedKeysAndFromEachOther) {
  Schedule other = schedule();
  other.params["tile_m"] = 128;
  EXPECT_NE(measurement_key("row", schedule()), "row");
  EXPECT_NE(measurement_key("row", schedule()), measurement_key("row", other));
  EXPECT_NE(measurement_key("row", schedule()), measurement_key("row2", schedule()));
}

}  // namespace
}  // namespace saccade::tuner
