// In the worker, after planner.js: opens the planner with the module that the page has compiled, then answers one question after the other.
let opened = null;
onmessage = async ({data}) => {
  if (data.module) {
    opened = openPlanner({
      instantiateWasm(imports, done) {
        WebAssembly.instantiate(data.module, imports).then((instance) => done(instance, data.module));
        return {};
      },
    });
    return;
  }
  const planner = await opened;
  let answer;
  let numbers = new Float64Array();
  try {
    answer = planner.ccall('baton_ask', 'string', ['string'], [JSON.stringify(data.question)]);
    numbers = new Float64Array(planner.HEAPF64.buffer, planner._baton_numbers(), planner._baton_number_count()).slice();
  } catch (error) {
    answer = JSON.stringify({error: `there is not enough memory in this browser for such a plan (${error.message ?? error})`, fatal: true});
  }
  postMessage({id: data.id, answer, numbers}, [numbers.buffer]);
};
