// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "../common/json_text.hpp"
#include "../common/table_text.hpp"

namespace benchmarks::checkpoints {

std::string table_head(const Options& o, const Machine& machine) {
    return "# shardkit checkpoints: " + counted(o.ranks, "thread") + ", " +
           program::PolicyChoice{o.policy, 0}.text() + "\n" + machine_head(machine, false, o.ranks) +
           "# method:  " + counted(o.rounds, "round") + ", in each of which everything has its turn; medians\n#\n" +
           program::formatted("# %20s %11s %9s %11s %9s  %s\n", "what", "time (ms)", "GB/s", "limit (ms)", "of limit",
                              "limit");
}

std::string table(const Measured& m) {
    std::string text;
    for (const Row& row : m.rows) {
        const double speed = static_cast<double>(m.state_bytes) / row.time.median / 1e9;
        text += program::formatted("  %20s %11s %9s %11s %9s  %s\n", row.what.c_str(),
                                   four_digits(row.time.median * 1e3).c_str(),
                                   row.limit ? four_digits(speed).c_str() : "-",
                                   row.limit ? four_digits(row.limit->median * 1e3).c_str() : "-",
                                   row.limit ? four_digits(row.share()).c_str() : "-", row.limit_is.c_str());
    }
    return text + "# state " + program::bytes_text(m.state_bytes) + "; written " +
           program::bytes_text(m.bytes_written) + ", read " + program::bytes_text(m.bytes_read) + "; collectives " +
           std::to_string(m.collectives_save) + " and " + std::to_string(m.collectives_load) +
           " a rank; memory besides " + program::bytes_text(m.extra_memory_save) + " and " +
           program::bytes_text(m.extra_memory_load) + program::formatted("; digests %.1f %%", 100 * m.digest_share) +
           " of plain writes into the page cache; " + std::to_string(m.wrong) + " wrong\n";
}

std::string json_report(const Options& o, const Machine& machine, const Measured& m) {
    using nlohmann::json;
    json rows = json::array();
    for (const Row& row : m.rows) {
        json object{{"what", row.what}, {"time_us", to_json(row.time)}};
        object["limit_is"] = row.limit ? json(row.limit_is) : json(nullptr);
        object["limit_us"] = row.limit ? to_json(*row.limit) : json(nullptr);
        object["share_of_limit"] = row.limit ? json(row.share()) : json(nullptr);
        rows.push_back(std::move(object));
    }
    return result_text("checkpoints", machine,
                       {{"ranks", o.ranks},
                        {"policy", program::PolicyChoice{o.policy, 0}.text()},
                        {"elements", o.elements},
                        {"rounds", o.rounds},
                        {"state_bytes", m.state_bytes},
                        {"bytes_written", m.bytes_written},
                        {"bytes_read", m.bytes_read},
                        {"collectives_save", m.collectives_save},
                        {"collectives_load", m.collectives_load},
                        {"extra_memory_save", m.extra_memory_save},
                        {"extra_memory_load", m.extra_memory_load},
                        {"digest_share", m.digest_share},
                        {"wrong", m.wrong},
                        {"rows", std::move(rows)}});
}

}  // namespace benchmarks::checkpoints
