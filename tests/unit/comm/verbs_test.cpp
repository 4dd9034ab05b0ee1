// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/communicator.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/send_receive.hpp>
#include <shardkit/verbs/split.hpp>

#include "../thrown_message.hpp"
#include "recording_verbs.hpp"

namespace verbs_test {

namespace {

using namespace shardkit;

constexpr SourceLocation here{"trainer.cpp", 42};

std::string refused(std::string_view sentence) { return std::string(sentence) + " (trainer.cpp:42)"; }
template <class F>
std::string message(F f) {
    return thrown_message<std::invalid_argument>(f);
}

/// A verb reached the engine once, with these spans and the caller's place.
template <class In, class Out>
void check_call(const comm_test::Call& call, const char* verb, std::span<In> input, std::span<Out> output) {
    CHECK(call.verb == verb);
    CHECK(call.count == 1);
    CHECK(call.input == input.data());
    CHECK(call.input_size == input.size());
    CHECK(call.output == output.data());
    CHECK(call.output_size == output.size());
    CHECK(std::string(call.where.file) == "trainer.cpp");
    CHECK(call.where.line == 42);
}

/// Three ranks' worth of everything: `k` elements a rank.
struct Three : comm_test::Recording {
    std::vector<float> k = std::vector<float>(5);
    std::vector<float> three_k = std::vector<float>(15);
    std::vector<float> uneven = std::vector<float>(16);
    std::span<const float> shard{k};
    std::span<float> shard_out{k};
    std::span<const float> full{three_k};
    std::span<float> full_out{three_k};
};

}  // namespace

TEST_CASE_FIXTURE(Three, "all_gather: full is size times shard") {
    all_gather(comm, shard, full_out, {}, here);
    check_call(call, "all_gather", shard, full_out);
    CHECK(message([&] { all_gather(comm, shard, std::span(uneven), {}, here); }) ==
          refused("all_gather over dp x cp: full has 16 elements, expected 3 ranks x 5 of shard"));
    CHECK(message([&] { all_gather(comm, shard, shard_out, {}, here); }) ==
          refused("all_gather over dp x cp: full has 5 elements, expected 3 ranks x 5 of shard"));
    CHECK(call.count == 1);  // what is refused never reaches the engine
}

TEST_CASE_FIXTURE(Three, "all_gather_in_place: size divides full") {
    all_gather_in_place(comm, full_out, {}, here);
    check_call(call, "all_gather", std::span<const float>(full_out.subspan(5, 5)), full_out);
    CHECK(message([&] { all_gather_in_place(comm, std::span(uneven), {}, here); }) ==
          refused("all_gather_in_place over dp x cp: 16 elements, expected a multiple of 3 ranks"));
    CHECK(call.count == 1);
}

TEST_CASE_FIXTURE(Three, "reduce_scatter: full is size times shard; the operation passes through") {
    reduce_scatter(comm, ReduceOp::max, full, shard_out, {}, here);
    check_call(call, "reduce_scatter", full, shard_out);
    CHECK(call.op == ReduceOp::max);
    CHECK(message([&] { reduce_scatter(comm, ReduceOp::sum, shard, shard_out, {}, here); }) ==
          refused("reduce_scatter over dp x cp: full has 5 elements, expected 3 ranks x 5 of shard"));
    CHECK(call.count == 1);
}

TEST_CASE_FIXTURE(Three, "reduce_scatter_in_place: size divides full") {
    reduce_scatter_in_place(comm, ReduceOp::min, full_out, {}, here);
    check_call(call, "reduce_scatter", std::span<const float>(full_out), full_out.subspan(5, 5));
    CHECK(call.op == ReduceOp::min);
    CHECK(message([&] { reduce_scatter_in_place(comm, ReduceOp::sum, std::span(uneven), {}, here); }) ==
          refused("reduce_scatter_in_place over dp x cp: 16 elements, expected a multiple of 3 ranks"));
    CHECK(call.count == 1);
}

TEST_CASE_FIXTURE(Three, "all_reduce: as many out as in, types may differ") {
    std::vector<bf16> narrow(15);
    all_reduce(comm, ReduceOp::min, std::span<const bf16>(narrow), full_out, {}, here);
    check_call(call, "all_reduce", std::span<const bf16>(narrow), full_out);
    CHECK(call.op == ReduceOp::min);
    CHECK(message([&] { all_reduce(comm, ReduceOp::sum, full, shard_out, {}, here); }) ==
          refused("all_reduce over dp x cp: output has 5 elements, expected 15 as input has"));
    CHECK(call.count == 1);
}

TEST_CASE_FIXTURE(Three, "all_reduce_in_place: any size") {
    all_reduce_in_place(comm, ReduceOp::max, std::span(uneven), {}, here);
    check_call(call, "all_reduce", std::span<const float>(uneven), std::span(uneven));
    CHECK(call.op == ReduceOp::max);
}

TEST_CASE_FIXTURE(Three, "broadcast: the root is a rank") {
    broadcast(comm, full_out, 2, {}, here);
    check_call(call, "broadcast", std::span<const float>{}, full_out);
    CHECK(call.from == 2);
    CHECK(message([&] { broadcast(comm, full_out, 3, {}, here); }) ==
          refused("broadcast over dp x cp: root 3, expected a rank below 3"));
    CHECK(call.count == 1);
}

TEST_CASE_FIXTURE(Three, "all_to_all: the same multiple of size in and out") {
    std::vector<float> received(15);
    all_to_all(comm, full, std::span(received), {}, here);
    check_call(call, "all_to_all", full, std::span(received));
    CHECK(
        message([&] { all_to_all(comm, full, shard_out, {}, here); }) ==
        refused("all_to_all over dp x cp: sends 15 and receives 5 elements, expected the same multiple of 3 ranks"));
    CHECK(message([&] { all_to_all(comm, std::span<const float>(uneven), std::span(uneven), {}, here); }) ==
          refused("all_to_all over dp x cp: sends 16 and receives 16 elements, expected the same multiple of 3 "
                  "ranks"));
    CHECK(call.count == 1);
}

TEST_CASE_FIXTURE(Three, "all_to_all_uneven: counts for each rank that add up to the buffers, the own ones equal") {
    const std::vector<std::size_t> sends{0, 4, 11};
    const std::vector<std::size_t> receives{12, 4, 0};
    all_to_all_uneven(comm, full, sends, std::span(uneven), receives, {}, here);
    check_call(call, "all_to_all_uneven", full, std::span(uneven));
    const auto message_of = [&](const std::vector<std::size_t>& a, const std::vector<std::size_t>& b) {
        return message([&] { all_to_all_uneven(comm, full, a, std::span(uneven), b, {}, here); });
    };
    const std::string over = "all_to_all_uneven over dp x cp: ";
    CHECK(message_of({15, 0}, receives) == refused(over + "2 send_counts, expected one for each of 3 ranks"));
    CHECK(message_of(sends, {4, 4, 4, 4}) == refused(over + "4 receive_counts, expected one for each of 3 ranks"));
    CHECK(message_of({0, 4, 12}, receives) ==
          refused(over + "send_counts add up to 16, expected the 15 elements of sent"));
    CHECK(message_of(sends, {11, 4, 0}) ==
          refused(over + "receive_counts add up to 15, expected the 16 elements of received"));
    // 2^64 + 15 is not 15.
    CHECK(message_of({std::size_t{1} << 63U, std::size_t{1} << 63U, 15}, receives) ==
          refused(over + "send_counts add up to 18446744073709551615, expected the 15 elements of sent"));
    CHECK(message_of(sends, {11, 5, 0}) ==
          refused(over + "rank 1 sends itself 4 and receives 5 elements of its own"));
    CHECK(call.count == 1);
}

TEST_CASE_FIXTURE(Three, "send, receive and send_receive: peers are ranks; sizes may differ between directions") {
    send(comm, full, 2, {}, here);
    check_call(call, "send", full, std::span<float>{});
    CHECK(call.to == 2);
    call.count = 0;
    receive(comm, full_out, 0, {}, here);
    check_call(call, "receive", std::span<const float>{}, full_out);
    CHECK(call.from == 0);
    call.count = 0;
    send_receive(comm, shard, 2, full_out, 0, {}, here);
    check_call(call, "send_receive", shard, full_out);
    CHECK(call.to == 2);
    CHECK(call.from == 0);
    CHECK(message([&] { send(comm, full, 3, {}, here); }) ==
          refused("send over dp x cp: peer 3, expected a rank below 3"));
    CHECK(message([&] { receive(comm, full_out, 7, {}, here); }) ==
          refused("receive over dp x cp: peer 7, expected a rank below 3"));
    CHECK(message([&] { send_receive(comm, shard, 3, full_out, 0, {}, here); }) ==
          refused("send_receive over dp x cp: peer 3, expected a rank below 3"));
    CHECK(message([&] { send_receive(comm, shard, 0, full_out, 4, {}, here); }) ==
          refused("send_receive over dp x cp: peer 4, expected a rank below 3"));
    CHECK(call.count == 1);
}

TEST_CASE_FIXTURE(Three, "barrier and split reach the engine") {
    barrier(comm, {}, here);
    CHECK(call.verb == "barrier");
    CHECK(call.where.line == 42);
    CHECK(split(comm, 0, 1, "tp", here).axes() == "tp");
    CHECK(call.verb == "split");
}

TEST_CASE_FIXTURE(Three, "empty spans are legal") {
    const std::span<float> none;
    CHECK_NOTHROW(all_gather(comm, std::span<const float>(none), none, {}));
    CHECK_NOTHROW(reduce_scatter(comm, ReduceOp::sum, std::span<const float>(none), none, {}));
    CHECK_NOTHROW(all_to_all(comm, std::span<const float>(none), none, {}));
    const std::vector<std::size_t> nothing(3);
    CHECK_NOTHROW(all_to_all_uneven(comm, std::span<const float>(none), nothing, none, nothing, {}));
    CHECK_NOTHROW(all_gather_in_place(comm, none, {}));
    CHECK_NOTHROW(broadcast(comm, none, 0, {}));
    CHECK(call.count == 6);
}

TEST_CASE_FIXTURE(Three, "errors and engines are given the caller's own line by default") {
    const auto line = static_cast<std::uint32_t>(__LINE__) + 1;
    all_gather(comm, shard, full_out, {});
    CHECK(std::string(call.where.file) == __FILE__);
    CHECK(call.where.line == line);
    const std::string text = message([&] { broadcast(comm, full_out, 3, {}); });
    const std::string place = std::string(__FILE__) + ":" + std::to_string(line + 3) + ")";
    CHECK(text.find(place) != std::string::npos);
}

TEST_CASE("in place over one rank nothing is left to do, and the engine is not asked") {
    comm_test::Recording alone;
    const auto& call = alone.call;
    const Communicator comm = alone.of(0, 1);
    std::vector<float> values{1, 2, 3};
    const std::span<float> all(values);
    all_gather_in_place(comm, all, {});
    reduce_scatter_in_place(comm, ReduceOp::sum, all, {});
    all_reduce_in_place(comm, ReduceOp::sum, all, {});
    CHECK(call.count == 0);
    all_reduce(comm, ReduceOp::sum, std::span<const float>(values), all, {});  // into memory of its own: a copy
    CHECK(call.count == 1);
}

TEST_CASE_FIXTURE(Three, "verbs take arrays, vectors and spans, and without a stream say the line of their call") {
    const std::vector<float> constant(5);
    std::array<double, 15> sums{};
    const auto line_of = [&](auto&& verb) {
        verb();
        CHECK(std::string(call.where.file) == __FILE__);
        return call.where.line;
    };
    CHECK(line_of([&] { all_gather(comm, constant, three_k); }) == __LINE__);
    CHECK(call.input == constant.data());
    CHECK(call.output == three_k.data());
    CHECK(call.output_size == 15);
    CHECK(line_of([&] { all_gather_in_place(comm, three_k); }) == __LINE__);
    CHECK(line_of([&] { all_reduce(comm, ReduceOp::max, three_k, sums); }) == __LINE__);
    CHECK(call.op == ReduceOp::max);
    CHECK(call.output == sums.data());
    CHECK(line_of([&] { all_reduce_in_place(comm, ReduceOp::sum, sums); }) == __LINE__);
    CHECK(line_of([&] { reduce_scatter(comm, ReduceOp::sum, std::span(three_k), shard_out); }) == __LINE__);
    CHECK(line_of([&] { reduce_scatter_in_place(comm, ReduceOp::sum, three_k); }) == __LINE__);
    CHECK(line_of([&] { broadcast(comm, k, 2); }) == __LINE__);
    CHECK(call.from == 2);
    CHECK(line_of([&] { all_to_all(comm, three_k, full_out); }) == __LINE__);
    const std::vector<std::size_t> fives(3, 5);
    CHECK(line_of([&] { all_to_all_uneven(comm, three_k, fives, full_out, fives); }) == __LINE__);
    CHECK(line_of([&] { send(comm, constant, 2); }) == __LINE__);
    CHECK(call.to == 2);
    CHECK(line_of([&] { receive(comm, k, 0); }) == __LINE__);
    CHECK(line_of([&] { send_receive(comm, constant, 2, k, 0); }) == __LINE__);
    CHECK(line_of([&] { barrier(comm); }) == __LINE__);
    // With a stream as before, whatever holds the elements.
    call.count = 0;
    all_gather(comm, constant, three_k, {}, here);
    check_call(call, "all_gather", std::span<const float>(constant), full_out);
}

TEST_CASE("verbs on one rank refuse wrong sizes with the same sentences") {
    self::World world;
    const shardkit::Communicator comm = shardkit::Communicator(world).named("dp");
    std::vector<float> five(5);
    std::vector<float> six(6);
    const std::span<const float> in(five);
    const std::span<float> out(six);
    CHECK(message([&] { all_gather(comm, in, out, {}, here); }) ==
          refused("all_gather over dp: full has 6 elements, expected 1 ranks x 5 of shard"));
    CHECK(message([&] { reduce_scatter(comm, ReduceOp::sum, in, out, {}, here); }) ==
          refused("reduce_scatter over dp: full has 5 elements, expected 1 ranks x 6 of shard"));
    CHECK(message([&] { all_reduce(comm, ReduceOp::sum, in, out, {}, here); }) ==
          refused("all_reduce over dp: output has 6 elements, expected 5 as input has"));
    CHECK(message([&] { all_to_all(comm, in, out, {}, here); }) ==
          refused("all_to_all over dp: sends 5 and receives 6 elements, expected the same multiple of 1 ranks"));
    CHECK(message([&] { broadcast(comm, out, 1, {}, here); }) ==
          refused("broadcast over dp: root 1, expected a rank below 1"));
    CHECK(message([&] { send(comm, in, 1, {}, here); }) == refused("send over dp: peer 1, expected a rank below 1"));
    CHECK(message([&] { receive(comm, out, 1, {}, here); }) ==
          refused("receive over dp: peer 1, expected a rank below 1"));
}

}  // namespace verbs_test
