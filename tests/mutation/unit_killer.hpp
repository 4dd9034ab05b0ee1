// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

#include <doctest/doctest.h>

// The main of a killer that runs the unit tests that it includes: its last line is the name of the first that failed.

namespace {

std::string failed;

/// Remembers the test that fails, and reports nothing else.
struct FirstFailed : doctest::IReporter {
    explicit FirstFailed(const doctest::ContextOptions&) {}
    void test_case_start(const doctest::TestCaseData& test) override { name = test.m_name; }
    void test_case_end(const doctest::CurrentTestCaseStats& ended) override {
        if (!ended.testCaseSuccess && failed.empty()) { failed = name; }
    }
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}

    std::string name;
};
REGISTER_REPORTER("first_failed", 1, FirstFailed);

}  // namespace

int main() {
    // Deadlines of a busy machine come last.
    for (const char* const deadlines : {"test-case-exclude", "test-case"}) {
        doctest::Context context;
        context.setOption("reporters", "first_failed");
        context.setOption("abort-after", 1);
        context.setOption("no-version", true);
        context.setOption(deadlines, "threads:*");
        if (context.run() != 0) {
            std::printf("%s\n", failed.c_str());
            return 1;
        }
    }
}
