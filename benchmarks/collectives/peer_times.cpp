// SPDX-License-Identifier: Apache-2.0
#include "peer_times.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "../../examples/common/input_error.hpp"
#include "../../examples/common/parse.hpp"
#include "bytes_of.hpp"
#include "plan_rows.hpp"
#include "verb_facts.hpp"

namespace benchmarks {

namespace {

using nlohmann::json;

/// Whether the row is a peer's collective that moves data.
bool is_collective(const json& row) {
    const json& peer = row.at("peer").at("name");
    return row.at("part") == "collectives" && row.at("verb") != "barrier" && peer != "std::barrier";
}

PeerTime parse(const json& row, std::size_t ranks) {
    PeerTime time;
    time.peer = row.at("peer").at("name").get<std::string>();
    // It becomes a line of a script.
    if (time.peer.empty() || time.peer.find_first_of("\r\n") != std::string::npos) {
        throw std::invalid_argument("a peer's name that is not one line");
    }
    time.verb = static_cast<VerbKind>(program::parse_name("verb", row.at("verb").get<std::string>(), verb_names));
    time.type = static_cast<DataType>(program::parse_name("type", row.at("type").get<std::string>(), type_names));
    time.seconds = row.at("peer").at("time_us").at("median").get<double>() * 1e-6;
    // Peers are told a size and round it down to whole pieces, as the program itself does.
    const std::uint64_t piece = bytes_of(time.type) * VerbFacts::of(time.verb, ranks).pieces;
    time.bytes = row.at("size").get<std::uint64_t>() / piece * piece;
    if (!(time.seconds > 0)) { throw std::invalid_argument("a time that is not above 0"); }
    return time;
}

/// Those over as many ranks; a peer that stands in several rows was measured once.
std::vector<PeerTime> parse_all(std::istream& stream, std::size_t ranks) {
    const json report = json::parse(stream);
    if (report.at("benchmark") != "peers" || report.at("format") != 1) {
        throw std::invalid_argument("another benchmark or format");
    }
    std::vector<PeerTime> times;
    for (const json& row : report.at("rows")) {
        if (!is_collective(row) || row.at("ranks") != ranks) { continue; }
        const PeerTime time = parse(row, ranks);
        const bool known = std::any_of(times.begin(), times.end(), [&](const PeerTime& other) {
            return other.peer == time.peer && other.verb == time.verb && other.type == time.type &&
                   other.bytes == time.bytes;
        });
        if (!known) { times.push_back(time); }
    }
    return times;
}

}  // namespace

std::vector<PeerTime> read_peer_times(const Options& o) {
    if (o.peers.empty()) { return {}; }
    if (o.groups() > 1) {
        throw program::bad_flag("--peers", o.peers, "one group: an --axis with all ranks of --mesh");
    }
    std::ifstream stream(o.peers);
    if (!stream) { throw program::bad_flag("--peers", o.peers, "a file that can be read"); }
    std::vector<PeerTime> times;
    try {
        times = parse_all(stream, o.group_size());
    } catch (const std::exception& error) {
        throw program::bad_flag(
            "--peers", o.peers,
            std::string("what benchmarks/run peers collectives --json writes (") + error.what() + ")");
    }
    const std::vector<PlannedRow> rows = plan_rows(o, o.group_size());
    std::erase_if(times, [&](const PeerTime& time) {
        return std::none_of(rows.begin(), rows.end(),
                            [&](const PlannedRow& planned) { return time.belongs_to(planned.row); });
    });
    if (times.empty()) {
        throw program::bad_flag(
            "--peers", o.peers,
            "a verb, size and type that is measured, over " + std::to_string(o.group_size()) + " ranks");
    }
    return times;
}

}  // namespace benchmarks
