// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <unistd.h>

#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

/// Identifies a saving process by a text beside its files. Where the file system has no locks, another process finds
/// out from it whether the process still runs.
class SavingProcess {
  public:
    /// Returns the text of this process: "BOOT NAMESPACE NUMBER BEGIN\n".
    static std::string text() {
        return concat(place(), " ", ::getpid(), " ", of_process(concat(::getpid())).begin, "\n");
    }
    /// Returns whether the process of such a text has certainly ended. For another machine, or another container on
    /// this one, the answer is false, as it is not known.
    static bool has_ended(std::string_view text) {
        const std::string here = concat(place(), " ");
        const Process own = of_process(concat(::getpid()));
        if (own.begin.empty() || !text.starts_with(here) || !text.ends_with('\n')) { return false; }
        text.remove_prefix(here.size());
        text.remove_suffix(1);
        const std::size_t space = text.find(' ');
        if (space == 0 || space > 9 || text.find_first_not_of("0123456789 ") != std::string_view::npos) {
            return false;
        }
        const std::string number(text.substr(0, space));
        if (::kill(static_cast<pid_t>(std::stol(number)), 0) != 0 && errno == ESRCH) { return true; }
        // Another process may have the number by now; a process outside of ours may be hidden.
        const Process process = of_process(number);
        return !process.begin.empty() && (process.ended || process.begin != text.substr(space + 1));
    }

  private:
    struct Process {
        std::string begin;  // start time in clock ticks; empty where it cannot be read
        bool ended = false;
    };

    static std::string read(const std::string& path) {
        std::ifstream file(path);
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
    /// Returns this boot of the machine, and the namespace of its process numbers.
    static std::string place() {
        std::string boot = read("/proc/sys/kernel/random/boot_id");
        boot.erase(boot.find_last_not_of('\n') + 1);
        char space[64] = "";
        const auto length = ::readlink("/proc/self/ns/pid", space, sizeof space);
        return concat(boot, " ", std::string_view(space, length > 0 ? static_cast<std::size_t>(length) : 0));
    }
    /// Reads proc(5): "7 (name) S 1 ...", whose 22nd field is the start time.
    static Process of_process(const std::string& number) {
        const std::string stat = read(concat("/proc/", number, "/stat"));
        std::size_t at = stat.rfind(')');
        if (at == std::string::npos) { return {}; }
        Process process;
        process.ended = stat.substr(at, 4) == ") Z " || stat.substr(at, 4) == ") X ";
        for (int field = 2; field < 22 && at != std::string::npos; ++field) { at = stat.find(' ', at + 1); }
        if (at == std::string::npos) { return {}; }
        process.begin = stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
        return process;
    }
};

}  // namespace shardkit::detail
