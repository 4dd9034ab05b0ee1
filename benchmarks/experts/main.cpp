// SPDX-License-Identifier: Apache-2.0
// Times the way of tokens to their experts and back, in turns with an all-to-all of as many bytes and a plain copy.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/expert_parallel.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/rank/all_reduce_value.hpp>

#include "../../examples/common/attempt.hpp"
#include "../../examples/common/read_flag.hpp"
#include "../common/json_text.hpp"
#include "../common/machine.hpp"
#include "../common/measure.hpp"
#include "../common/result_files.hpp"
#include "../common/table_text.hpp"

namespace {

using namespace benchmarks;
namespace sk = shardkit;

struct Options {
    std::size_t ranks = 2;
    std::size_t tokens = 4096;
    std::size_t width = 1024;
    std::size_t experts = 8;
    std::size_t top = 2;
    std::size_t rounds = 15;
    std::string json;
};

std::optional<Options> parse(int count, char** arguments, std::string& help) {
    program::Flags flags("Times dispatch and combine of tokens between threads that share the experts of a layer.",
                         "experts");
    flags.add("--ranks", "N", "threads, each with a part of the experts [2]");
    flags.add("--tokens", "N", "tokens of each [4096]");
    flags.add("--width", "N", "fp32 numbers of a token [1024]");
    flags.add("--experts", "N", "experts, a multiple of the threads [8]");
    flags.add("--top", "N", "experts of a token [2]");
    flags.add("--rounds", "N", "rounds in which everything has its turn; the median is reported [15]");
    flags.add("--json", "FILE", "write the results as one JSON object");
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }
    Options o;
    program::read_count(flags, "--ranks", o.ranks, 1, 64);
    program::read_count(flags, "--tokens", o.tokens, 1, 10'000'000);
    program::read_count(flags, "--width", o.width, 1, 1'000'000);
    program::read_count(flags, "--experts", o.experts, 1, 10'000);
    program::read_count(flags, "--top", o.top, 1, 100);
    program::read_count(flags, "--rounds", o.rounds, 1, 10'000);
    program::read_file(flags, "--json", o.json);
    if (o.experts % o.ranks != 0) {
        throw program::bad_flag("--experts", std::to_string(o.experts),
                                "a multiple of --ranks " + std::to_string(o.ranks));
    }
    if (o.top > o.experts) {
        throw program::bad_flag("--top", std::to_string(o.top), "at most --experts " + std::to_string(o.experts));
    }
    return o;
}

constexpr std::array<const char*, 4> names{"dispatch", "combine", "all_to_all", "plain copy"};

struct Measured {
    std::array<Summary, names.size()> seconds;
    std::uint64_t bytes = 0;  ///< that a rank sends and, in the mean, gets, its own among them
    std::uint64_t wrong = 0;  ///< numbers that are not what was sent
};

/// Choices as even as numbers without a pattern make them, a token's all different.
std::uint32_t choice(const Options& o, std::size_t rank, std::size_t c) {
    const std::size_t token = rank * o.tokens + c / o.top;
    return static_cast<std::uint32_t>(((token * 0x9E3779B97F4A7C15ULL >> 40U) + c % o.top) % o.experts);
}

Measured run(const Options& o) {
    Measured measured;
    sk::threads::run(sk::ExpertMesh{sk::DeviceMesh{o.ranks}, o.ranks}, [&](auto& rank) {
        const auto shared = sk::ep::ranks(rank);
        sk::ep::TokenExchange exchange{rank, shared, o.experts};
        std::vector<std::uint32_t> choices(o.tokens * o.top);
        for (std::size_t c = 0; c < choices.size(); ++c) { choices[c] = choice(o, rank.rank(), c); }
        sk::ep::Assignment assignment(o.experts);
        assignment.assign(choices);
        const sk::ep::Routes routes = exchange.route(assignment.rows());
        std::vector<float> rows(routes.rows_sent() * o.width), received(routes.rows_received() * o.width);
        std::vector<float> back(rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) { rows[i] = static_cast<float>((rank.rank() + i) % 4093); }
        // As many bytes, in equal pieces.
        const std::size_t even = rows.size() / o.ranks * o.ranks;
        std::vector<float> even_sent(even, 1), even_received(even);
        PlainCopy copy(rank, rows.size() * sizeof(float));
        const std::span<const float> sent(rows), got(received);
        std::vector<Turn> turns{[&](std::size_t n) {
                                    for (; n > 0; --n) {
                                        exchange.dispatch(routes, o.width, sent, std::span(received));
                                    }
                                },
                                [&](std::size_t n) {
                                    for (; n > 0; --n) { exchange.combine(routes, o.width, got, std::span(back)); }
                                },
                                [&](std::size_t n) {
                                    for (; n > 0; --n) { sk::all_to_all(shared, even_sent, even_received); }
                                }};
        const Repeats repeats{.rounds = o.rounds};
        add_copies(repeats, rows.size() * sizeof(float), copy, turns);
        const std::size_t calls = repeats.calls_for(rows.size() * sizeof(float));
        const auto times = time_in_turns(rank, o.rounds, calls, std::span(turns));
        const auto fastest = fastest_copy(copy, rows.size() * sizeof(float), std::span(times).subspan(3));
        // What was dispatched comes back.
        std::uint64_t wrong = 0;
        for (std::size_t i = 0; i < rows.size(); ++i) { wrong += back[i] == rows[i] ? 0U : 1U; }
        const auto all_wrong = sk::all_reduce_value(rank, static_cast<double>(wrong));
        if (rank.rank() == 0) {
            measured.seconds = {times[0], times[1], times[2], fastest->time};
            measured.bytes = rows.size() * sizeof(float);
            measured.wrong = static_cast<std::uint64_t>(all_wrong);
        }
    });
    return measured;
}

void measure_and_report(int count, char** arguments) {
    std::string help;
    const auto options = parse(count, arguments, help);
    if (!options) {
        print(help);
        return;
    }
    const Machine machine = read_machine();
    require_memory(7.0 * static_cast<double>(options->ranks * options->tokens * options->top * options->width) * 4,
                   "--tokens");
    const ResultFiles files(options->json, "");
    print("# shardkit experts: " + counted(options->ranks, "thread") + ", " + counted(options->experts, "expert") +
          ", " + std::to_string(options->top) + " of each token, " + counted(options->tokens, "token") +
          " of width " + std::to_string(options->width) + " a thread\n" +
          machine_head(machine, false, options->ranks) + "# method:  " + counted(options->rounds, "round") +
          ", in each of which everything has its turn; medians\n#\n" +
          program::formatted("# %10s %11s %9s %15s\n", "what", "time (us)", "GB/s", "of plain copy"));
    const Measured measured = run(*options);
    nlohmann::json rows = nlohmann::json::array();
    for (std::size_t which = 0; which < names.size(); ++which) {
        const double seconds = measured.seconds[which].median;
        const double share = measured.seconds.back().median / seconds;
        print(program::formatted("  %10s %11s %9s %15s\n", names[which], four_digits(seconds * 1e6).c_str(),
                                 four_digits(static_cast<double>(measured.bytes) / seconds / 1e9).c_str(),
                                 four_digits(share).c_str()));
        rows.push_back(
            {{"what", names[which]}, {"time_us", to_json(measured.seconds[which])}, {"share_of_copy", share}});
    }
    print("# " + program::bytes_text(measured.bytes) + " of each thread; " + std::to_string(measured.wrong) +
          " wrong\n");
    files.write(result_text("experts", machine,
                            {{"ranks", options->ranks},
                             {"tokens", options->tokens},
                             {"width", options->width},
                             {"experts", options->experts},
                             {"top", options->top},
                             {"rounds", options->rounds},
                             {"bytes", measured.bytes},
                             {"wrong", measured.wrong},
                             {"rows", std::move(rows)}}));
    if (measured.wrong > 0) {
        throw std::runtime_error("wrong data: " + std::to_string(measured.wrong) + " numbers did not come back");
    }
}

}  // namespace

int main(int count, char** arguments) {
    return program::run_program("experts", [&] { measure_and_report(count, arguments); });
}
