// SPDX-License-Identifier: Apache-2.0
#include "result_files.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "../../examples/common/gnuplot.hpp"
#include "../../examples/common/input_error.hpp"
#include "machine.hpp"

namespace benchmarks {

namespace {

/// What benchmarks/charts/main.py says to a result.
program::Answer ask_charts(const std::string& plot, const std::string& peers, const std::string& result) {
    const nlohmann::json asked{{"picture", plot}, {"peers", peers}, {"draws", !plot.empty()}};
    const std::string text = asked.dump();
    program::Answer answer = program::answer_of("python3 -B '" BENCHMARKS_CHARTS "'",
                                                text.substr(0, text.size() - 1) + ",\"result\":" + result + "}");
    const bool refused = answer.code == 2 && !answer.text.empty();
    if (answer.code != 0 && !refused) {
        throw std::runtime_error("--plot: python3 " BENCHMARKS_CHARTS " failed" +
                                 (answer.text.empty() ? "" : ": " + answer.text));
    }
    return answer;
}

}  // namespace

Machine read_machine() {
    Machine machine = Machine::read();
    machine.flags = BENCHMARKS_FLAGS;
    const char* const commit = std::getenv("SHARDKIT_COMMIT");
    if (commit != nullptr && *commit != '\0') { machine.commit = commit; }
    return machine;
}

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

ResultFiles::ResultFiles(const std::string& json, const std::string& plot)
    : json_("--json", json), plot_("--plot", plot) {
    if (plot_.wanted()) { program::require_plotter(plot); }
    program::require_two_files(json_, plot_);
}

void ResultFiles::write(const std::string& result, const std::string& peers) const {
    if (json_.wanted()) { json_.write(result); }
    if (!plot_.wanted()) { return; }
    const program::Answer picture = ask_charts(plot_.name(), peers, result);
    if (picture.code != 0) { throw std::runtime_error("--plot: expected " + picture.text); }
    plot_.write(picture.text);
}

void require_peers(const std::string& peers, const std::string& planned) {
    const program::Answer answer = ask_charts("", peers, planned);
    if (answer.code != 0) { throw program::bad_flag("--peers", peers, answer.text); }
}

}  // namespace benchmarks
